#include <cmath>
#include <numeric>

#include "tests/templates/harness.h"
#include "tests/templates/products.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::DType;

constexpr int kPositions = 1024, kHeadDim = 64, kMaxRows = 257;
constexpr int kRowCounts[] = {0, 1, 2, 63, 64, 65, 130, 256};

struct Shape {
  int heads, k;
  int width() const { return 3 * heads * kHeadDim; }
};

/// A product with rotated heads on one device, its inputs, and what should come out.
class GemmRope {
 public:
  GemmRope(Harness& on, DType dtype, const Shape& shape, model::Op op)
      : on_(on), dtype_(dtype), shape_(shape), op_(std::move(op)) {
    for (int position = 0; position < kPositions; ++position) {
      for (int i = 0; i < kHeadDim / 2; ++i) {
        const double angle = position * std::pow(10000.0, -2.0 * i / kHeadDim);
        cos_.push_back(static_cast<float>(std::cos(angle)));
        sin_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    const float scale = std::sqrt(3.0F / static_cast<float>(shape.k));
    a_ = random_.values(static_cast<size_t>(kMaxRows) * shape.k, -1, 1, dtype);
    w_ = random_.values(static_cast<size_t>(shape.width()) * shape.k, -scale, scale, dtype);
    for (size_t i = 0; i < cos_.size(); ++i) {
      angles_.push_back(cos_[i]);
      angles_.push_back(sin_[i]);
    }
    for (int row = 0; row < kMaxRows; ++row) positions_.push_back(random_.below(kPositions));
    positions_[1] = kPositions - 1;
  }

  void check() {
    CAPTURE(op_.variants.front().spec.to_string());
    const std::vector<float> whole = run(op_.variants.front(), 0, kMaxRows);
    std::vector<int64_t> columns(static_cast<size_t>(shape_.width()));
    std::iota(columns.begin(), columns.end(), int64_t{0});
    const std::vector<double> qkv =
        reference::product(to_double(a_), to_double(w_), {}, shape_.k, columns);
    check_close(whole,
                interleaved_heads(reference::rope(qkv, to_double(cos_), to_double(sin_), positions_,
                                                  shape_.heads, kHeadDim),
                                  2 * shape_.heads, shape_.width(), 1),
                tolerance_of(dtype_));
    for (const model::Variant& variant : op_.variants) {
      CAPTURE(variant.spec.to_string());
      for (const int rows : kRowCounts) {
        CAPTURE(rows);
        check_same_bits(run(variant, 0, rows),
                        std::span(whole).first(static_cast<size_t>(rows) * shape_.width()));
      }
      check_same_bits(run(variant, 57, 1), std::span(whole).subspan(57 * size_t(shape_.width()),
                                                                    size_t(shape_.width())));
    }
  }

 private:
  std::vector<float> run(const model::Variant& variant, int first, int rows) {
    const auto from = a_.begin() + static_cast<std::ptrdiff_t>(first) * shape_.k;
    const DeviceArray a =
        on_.floats({from, from + static_cast<std::ptrdiff_t>(rows) * shape_.k}, dtype_);
    const std::vector<float> rows_of_w =
        interleaved_heads(w_, 2 * shape_.heads, w_.size(), shape_.k);
    const DeviceArray w = on_.weight(rows_of_w, dtype_, shape_.width(), shape_.k, false);
    const DeviceArray angles = on_.floats(angles_);
    const DeviceArray positions =
        on_.ints({positions_.begin() + first, positions_.begin() + first + rows});
    const DeviceArray out = on_.output(static_cast<size_t>(rows) * shape_.width(), dtype_);
    on_.run(variant, rows, a, w, angles, positions, kNoArray, kNoArray, out, 1e-5f, rows);
    return on_.read(out);
  }

  Harness& on_;
  DType dtype_;
  Shape shape_;
  model::Op op_;
  Random random_{13};
  std::vector<float> cos_, sin_, angles_, a_, w_;
  std::vector<int> positions_;
};

}  // namespace

DEVICE_TEST("gemm_rope: q and k are rotated products, v is a product") {
  std::vector<Shape> shapes = {{1, 64}, {3, 136}};
  if (on.is_thorough()) shapes.insert(shapes.end(), {{12, 768}, {16, 1024}});
  for (const DType dtype : on.dtypes()) {
    std::vector<model::Op> ops;
    for (const Shape& s : shapes) {
      ops.push_back(model::gemm_rope_op(on.target(), dtype, s.heads, kHeadDim, s.k));
    }
    if (ops.front().variants.empty()) continue;  // no such kernel here: gemm and rope do it
    on.prepare(ops);
    for (size_t i = 0; i < shapes.size(); ++i) GemmRope(on, dtype, shapes[i], ops[i]).check();
  }
}

DEVICE_TEST("gemm_rope: all of Hopper's tiles give the same bits, wherever heads begin in them") {
  if (on.target().name != "sm_90a") return;
  const Shape shape = on.is_thorough() ? Shape{11, 136} : Shape{1, 64};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const model::Op op = model::gemm_rope_op(on.target(), dtype, shape.heads, kHeadDim, shape.k);
    const auto base = model::product_base(op.variants.front().spec);
    const model::Op all = with_tiles(op, model::ranked_product_tiles(*base, 64));
    on.prepare({all});
    GemmRope(on, dtype, shape, all).check();
  }
}

}  // namespace laya::test
