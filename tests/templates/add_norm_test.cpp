#include "tests/templates/harness.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::DType;

constexpr float kEps = 1e-5f;

struct Case {
  DType dtype, out;
  int d;
  bool delta, bias;
};

std::vector<Case> all_cases(const Harness& on) {
  std::vector<Case> cases;
  for (const DType dtype : on.dtypes()) {
    for (const int d : {8, 72, 768, 1024}) {
      cases.push_back({dtype, dtype, d, true, false});
      cases.push_back({dtype, dtype, d, true, true});
    }
    cases.push_back({dtype, dtype, 768, false, false});
    cases.push_back({dtype, dtype, 768, false, true});
    cases.push_back({dtype, DType::kF32, 768, true, true});
  }
  return cases;
}

model::Op op_of(const Harness& on, const Case& c) {
  return model::add_norm_op(on.target(), c.dtype, c.out, c.d, c.delta);
}

struct Outputs {
  std::vector<float> x, out;
};

class AddNorm {
 public:
  AddNorm(Harness& on, const Case& c)
      : on_(on),
        case_(c),
        op_(op_of(on, c)),
        random_(static_cast<uint64_t>(c.d)),
        weight_(random_.values(size(c.d), -1, 2)),
        bias_(random_.values(size(c.d), -1, 1)) {}

  void check(int rows) {
    const std::vector<float> x = random_.values(size(rows) * size(case_.d), -50, 50);
    const std::vector<float> delta = random_.values(size(rows) * size(case_.d), -5, 5, case_.dtype);
    std::vector<float> sum = x;
    for (size_t i = 0; case_.delta && i < sum.size(); ++i) sum[i] += delta[i];
    const Outputs outputs = run(x, delta, rows);
    check_same_bits(outputs.x, sum);
    const std::vector<double> bias = case_.bias ? to_double(bias_) : std::vector<double>();
    check_close(outputs.out, reference::layer_norm(to_double(sum), to_double(weight_), bias, kEps),
                tolerance_of(case_.out));
    if (rows > 6) check_row_alone(x, delta, outputs, 6);
  }

 private:
  static size_t size(int n) { return static_cast<size_t>(n); }

  Outputs run(const std::vector<float>& x, const std::vector<float>& delta, int rows) {
    const DeviceArray device_x = on_.floats(x), device_delta = on_.floats(delta, case_.dtype);
    const DeviceArray weight = on_.floats(weight_), bias = on_.floats(bias_);
    const DeviceArray out = on_.output(x.size(), case_.out);
    on_.run(op_, rows, device_x, case_.delta ? device_delta.data() : kNoArray, weight,
            case_.bias ? bias.data() : kNoArray, out, kEps, rows);
    return {on_.read(device_x), on_.read(out)};
  }

  void check_row_alone(const std::vector<float>& x, const std::vector<float>& delta,
                       const Outputs& outputs, int row) {
    const auto cut = [&](const std::vector<float>& values) {
      const auto begin = values.begin() + row * case_.d;
      return std::vector<float>(begin, begin + case_.d);
    };
    const Outputs alone = run(cut(x), cut(delta), 1);
    check_same_bits(alone.x, cut(outputs.x));
    check_same_bits(alone.out, cut(outputs.out));
  }

  Harness& on_;
  Case case_;
  model::Op op_;
  Random random_;
  std::vector<float> weight_, bias_;
};

}  // namespace

DEVICE_TEST("add_norm: the residual is exact and the norm right, with and without delta and bias") {
  const std::vector<Case> cases = all_cases(on);
  std::vector<model::Op> ops;
  for (const Case& c : cases) ops.push_back(op_of(on, c));
  on.prepare(ops);
  for (const Case& c : cases) {
    AddNorm add_norm(on, c);
    CAPTURE(op_of(on, c).variants.front().spec.to_string());
    for (const int rows : {0, 1, 2, 7, 65}) {
      CAPTURE(rows);
      add_norm.check(rows);
    }
  }
}

}  // namespace laya::test
