#include "tests/templates/harness.h"

namespace laya::test {
namespace {

using model::DType;

constexpr int kRows = 40;

std::vector<float> pick(const std::vector<float>& rows, const std::vector<int>& index, int d) {
  std::vector<float> picked;
  for (const int row : index) {
    picked.insert(picked.end(), rows.begin() + row * d, rows.begin() + (row + 1) * d);
  }
  return picked;
}

}  // namespace

DEVICE_TEST("gather_rows: chosen rows are copied bit by bit, in any order and more than once") {
  Random random(5);
  for (const DType dtype : on.dtypes()) {
    for (const int d : {8, 72, 768, 1024}) {
      CAPTURE(model::to_string(dtype));
      CAPTURE(d);
      const model::Op op = model::gather_rows_op(on.target(), dtype, d);
      const std::vector<float> a = random.values(static_cast<size_t>(kRows * d), -9, 9, dtype);
      const std::vector<float> x = random.values(static_cast<size_t>(kRows * d), -9, 9);
      const DeviceArray device_a = on.floats(a, dtype);
      const ResidualArray device_x = on.residual(x, dtype);
      const std::vector<float> stored_x = on.read(device_x);
      for (const int n : {0, 1, 2, 7, 65}) {
        std::vector<int> index;
        for (int i = 0; i < n; ++i) index.push_back(i == 1 ? kRows - 1 : random.below(kRows));
        const DeviceArray device_index = on.ints(index);
        const DeviceArray a_out = on.output(static_cast<size_t>(n * d), dtype);
        const ResidualArray x_out = on.residual_output(static_cast<size_t>(n * d), dtype);
        on.run(op, n, device_index, device_a, device_x.x, device_x.low(), a_out, x_out.x,
               x_out.low(), n);
        check_same_bits(on.read(a_out), pick(a, index, d));
        check_same_bits(on.read(x_out), pick(stored_x, index, d));
      }
    }
  }
}

}  // namespace laya::test
