#include "tests/templates/harness.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::DType;

constexpr float kEps = 1e-5f;

struct Case {
  DType out;
  int d;
  bool bias;
};

std::vector<Case> all_cases(const Harness& on) {
  std::vector<Case> cases;
  for (const DType dtype : on.dtypes()) {
    for (const int d : {8, 72, 768, 1024}) {
      for (const bool bias : {false, true}) cases.push_back({dtype, d, bias});
    }
  }
  return cases;
}

model::Op op_of(const Harness& on, const Case& c) {
  return model::layer_norm_op(on.target(), c.out, c.d);
}

class LayerNorm {
 public:
  LayerNorm(Harness& on, const Case& c)
      : on_(on),
        case_(c),
        op_(op_of(on, c)),
        random_(static_cast<uint64_t>(c.d)),
        weight_(random_.values(size(c.d), -1, 2)),
        bias_(random_.values(size(c.d), -1, 1)) {}

  void check(int rows) {
    const std::vector<float> x = random_.values(size(rows) * size(case_.d), -50, 50);
    const std::vector<float> out = run(x, rows);
    const std::vector<double> bias = case_.bias ? to_double(bias_) : std::vector<double>();
    check_close(out, reference::layer_norm(to_double(x), to_double(weight_), bias, kEps),
                tolerance_of(case_.out));
    if (rows > 6) check_same_bits(run(row_of(x, 6), 1), row_of(out, 6));
  }

 private:
  static size_t size(int n) { return static_cast<size_t>(n); }
  std::vector<float> row_of(const std::vector<float>& values, int row) const {
    const auto begin = values.begin() + row * case_.d;
    return {begin, begin + case_.d};
  }

  std::vector<float> run(const std::vector<float>& x, int rows) {
    const DeviceArray device_x = on_.floats(x), weight = on_.floats(weight_);
    const DeviceArray bias = on_.floats(bias_), out = on_.output(x.size(), case_.out);
    on_.run(op_, rows, device_x, weight, case_.bias ? bias.data() : kNoArray, out, kEps, rows);
    check_same_bits(on_.read(device_x), x);
    return on_.read(out);
  }

  Harness& on_;
  Case case_;
  model::Op op_;
  Random random_;
  std::vector<float> weight_, bias_;
};

}  // namespace

CPU_TEST("layer_norm: rows are right, alone and among others, with and without bias") {
  const std::vector<Case> cases = all_cases(on);
  std::vector<model::Op> ops;
  for (const Case& c : cases) ops.push_back(op_of(on, c));
  on.prepare(ops);
  for (const Case& c : cases) {
    LayerNorm layer_norm(on, c);
    CAPTURE(op_of(on, c).variants.front().spec.to_string());
    for (const int rows : {0, 1, 2, 7, 65}) {
      CAPTURE(rows);
      layer_norm.check(rows);
    }
  }
}

}  // namespace laya::test
