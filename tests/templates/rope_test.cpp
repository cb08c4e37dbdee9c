#include <cmath>

#include "tests/templates/harness.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::DType;

constexpr int kPositions = 1024;

struct Shape {
  int heads, head_dim;
};

class Rope {
 public:
  Rope(Harness& on, DType dtype, const Shape& shape)
      : on_(on),
        dtype_(dtype),
        shape_(shape),
        op_(model::rope_op(on.target(), dtype, shape.heads, shape.head_dim)) {
    for (int position = 0; position < kPositions; ++position) {
      for (int i = 0; i < shape.head_dim / 2; ++i) {
        const double angle = position * std::pow(10000.0, -2.0 * i / shape.head_dim);
        cos_.push_back(static_cast<float>(std::cos(angle)));
        sin_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }

  void check(int rows) {
    const size_t width = static_cast<size_t>(3 * shape_.heads * shape_.head_dim);
    const std::vector<float> qkv = random_.values(static_cast<size_t>(rows) * width, -3, 3, dtype_);
    std::vector<int> positions;
    for (int row = 0; row < rows; ++row) positions.push_back(random_.below(kPositions));
    if (rows > 1) positions[1] = kPositions - 1;
    const std::vector<float> turned = run(qkv, positions);

    check_close(turned,
                reference::rope(to_double(qkv), to_double(cos_), to_double(sin_), positions,
                                shape_.heads, shape_.head_dim),
                tolerance_of(dtype_));
    for (int row = 0; row < rows; ++row) {
      const size_t v = static_cast<size_t>(row) * width + 2 * width / 3;
      check_same_bits(std::span(turned).subspan(v, width / 3),
                      std::span(qkv).subspan(v, width / 3));
    }
    if (rows < 7) return;
    const auto begin = qkv.begin() + static_cast<std::ptrdiff_t>(6 * width);
    const std::vector<float> alone =
        run({begin, begin + static_cast<std::ptrdiff_t>(width)}, {positions[6]});
    check_same_bits(alone, std::span(turned).subspan(6 * width, width));
  }

 private:
  std::vector<float> run(const std::vector<float>& qkv, const std::vector<int>& positions) {
    const int rows = static_cast<int>(positions.size());
    const DeviceArray device_qkv = on_.floats(qkv, dtype_);
    const DeviceArray cos = on_.floats(cos_), sin = on_.floats(sin_);
    const DeviceArray device_positions = on_.ints(positions);
    on_.run(op_, rows, device_qkv, cos, sin, device_positions, rows);
    return on_.read(device_qkv);
  }

  Harness& on_;
  DType dtype_;
  Shape shape_;
  model::Op op_;
  Random random_{11};
  std::vector<float> cos_, sin_;
};

}  // namespace

DEVICE_TEST("rope: q and k turn by their position, v stays as it is") {
  for (const DType dtype : on.dtypes()) {
    for (const Shape& shape : {Shape{12, 64}, {16, 64}, {1, 64}, {3, 16}, {2, 48}}) {
      CAPTURE(model::to_string(dtype));
      CAPTURE(shape.heads);
      Rope rope(on, dtype, shape);
      for (const int rows : {0, 1, 2, 7, 65}) {
        CAPTURE(rows);
        rope.check(rows);
      }
    }
  }
}

}  // namespace laya::test
