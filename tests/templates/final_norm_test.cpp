#include "tests/templates/harness.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::DType;

constexpr float kEps = 1e-5f;

struct Outputs {
  std::vector<float> x, out;
};

class FinalNorm {
 public:
  FinalNorm(Harness& on, DType dtype, int d)
      : on_(on),
        dtype_(dtype),
        d_(static_cast<size_t>(d)),
        op_(model::final_norm_op(on.target(), dtype, d)),
        random_(d_),
        weight_(random_.values(d_, 0, 2)),
        types_table_(random_.values(3 * d_, -1, 1)),
        norm_weight_(random_.values(d_, -1, 2)),
        norm_bias_(random_.values(d_, -1, 1)) {}

  void check(int rows) {
    const size_t count = static_cast<size_t>(rows) * d_;
    const std::vector<float> x = random_.values(count, -50, 50);
    std::vector<int> types;
    for (int row = 0; row < rows; ++row) types.push_back(row % 3);
    const Outputs outputs = run(x, types);

    std::vector<double> expected =
        reference::layer_norm(to_double(x), to_double(weight_), {}, kEps);
    for (size_t i = 0; i < count; ++i) {
      expected[i] += types_table_[static_cast<size_t>(types[i / d_]) * d_ + i % d_];
    }
    check_close(outputs.x, expected, {4e-6, 4e-6});
    check_close(
        outputs.out,
        reference::layer_norm(expected, to_double(norm_weight_), to_double(norm_bias_), kEps),
        dtype_ == DType::kF32 ? Tolerance{1e-5, 1e-5} : tolerance_of(dtype_));
    if (rows > 6) check_row_alone(x, types, outputs, 6);
  }

 private:
  Outputs run(const std::vector<float>& x, const std::vector<int>& types) {
    const int rows = static_cast<int>(types.size());
    const ResidualArray device_x = on_.residual(x, dtype_);
    const DeviceArray weight = on_.floats(weight_), table = on_.floats(types_table_);
    const DeviceArray device_types = on_.ints(types), norm_weight = on_.floats(norm_weight_);
    const DeviceArray norm_bias = on_.floats(norm_bias_), out = on_.output(x.size(), dtype_);
    on_.run(op_, rows, device_x.x, device_x.low(), weight, table, device_types, norm_weight,
            norm_bias, out, kEps, rows);
    return {on_.read(device_x), on_.read(out)};
  }

  void check_row_alone(const std::vector<float>& x, const std::vector<int>& types,
                       const Outputs& outputs, int row) {
    const auto cut = [&](const std::vector<float>& values) {
      const auto begin = values.begin() + row * static_cast<std::ptrdiff_t>(d_);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(d_));
    };
    const Outputs alone = run(cut(x), {types[static_cast<size_t>(row)]});
    check_same_bits(alone.x, cut(outputs.x));
    check_same_bits(alone.out, cut(outputs.out));
  }

  Harness& on_;
  DType dtype_;
  size_t d_;
  model::Op op_;
  Random random_;
  std::vector<float> weight_, types_table_, norm_weight_, norm_bias_;
};

}  // namespace

DEVICE_TEST("final_norm: both norms and the type of each row's question") {
  for (const DType dtype : on.dtypes()) {
    for (const int d : {8, 72, 768, 1024}) {
      CAPTURE(model::to_string(dtype));
      CAPTURE(d);
      FinalNorm final_norm(on, dtype, d);
      for (const int rows : {0, 1, 2, 7, 65}) {
        CAPTURE(rows);
        final_norm.check(rows);
      }
    }
  }
}

}  // namespace laya::test
