#include <cmath>

#include "model/residual.h"
#include "tests/templates/harness.h"
#include "tests/templates/products.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::DType;

constexpr int kMaxRows = 1001;
constexpr int kRowCounts[] = {0, 1, 2, 7, 64, 65, 130, 257};
constexpr int64_t kGroup = 32;  // columns that moments describe

struct Shape {
  int64_t n, k;
};

struct Outputs {
  std::vector<float> x, upper, moments;  // the last two are empty on the CPU
};

/// One product on one device, its inputs, and what should come out.
class GemmResidual {
 public:
  GemmResidual(Harness& on, DType dtype, const Shape& shape, bool with_bias)
      : on_(on),
        dtype_(dtype),
        n_(shape.n),
        k_(shape.k),
        random_(static_cast<uint64_t>(n_ + k_)),
        a_(random_.values(size(kMaxRows * k_), -1, 1, dtype)),
        w_(random_.values(size(n_ * k_), -scale(), scale(), dtype)),
        bias_(random_.values(size(n_), -1, 1)),
        x_(random_.values(size(kMaxRows * n_), -5, 5)),
        device_a_(on.floats(a_, dtype)),
        device_w_(on.weight(w_, dtype, n_, k_, false)),
        device_bias_(on.floats(bias_)),
        with_bias_(with_bias) {
    // A row with a mean far from zero, and one with an outlier.
    for (int64_t i = 0; i < n_; ++i) x_[size(n_ + i)] += 1000;
    x_[size(5 * n_ + 3)] = 30000;
    x_ = on.read(on.residual(x_, dtype));
  }

  /// All rows against the reference, and the bits of fewer rows and other tiles against these.
  void check(const model::Op& op) {
    const Outputs whole = run(op.variants.front(), 0, kMaxRows);
    check_sums(whole.x);
    if (!on_.is_cpu()) check_for_next(whole);
    for (const model::Variant& variant : op.variants) {
      CAPTURE(variant.spec.to_string());
      for (const int rows : kRowCounts) {
        CAPTURE(rows);
        check_same(run(variant, 0, rows), whole, 0, rows);
      }
      check_same(run(variant, 0, kMaxRows), whole, 0, kMaxRows);
      check_same(run(variant, 57, 1), whole, 57, 1);
    }
  }

 private:
  static size_t size(int64_t count) { return static_cast<size_t>(count); }
  float scale() const { return std::sqrt(3.0f / static_cast<float>(k_)); }

  Outputs run(const model::Variant& variant, int first_row, int rows) {
    const auto begin = x_.begin() + first_row * n_;
    const ResidualArray x = on_.residual({begin, begin + rows * n_}, dtype_);
    void* const a = device_a_.at(size(first_row * k_));
    void* const bias = with_bias_ ? device_bias_.data() : kNoArray;
    if (on_.is_cpu()) {
      on_.run(variant, rows, a, device_w_, bias, x.x, rows);
      return {on_.read(x), {}, {}};
    }
    const DeviceArray moments = on_.output(size(model::moment_floats(rows, n_)));
    on_.run(variant, rows, a, device_w_, bias, x.x, x.low(), x.x, x.low(), moments, rows);
    const std::vector<float> array = on_.read(moments);
    check_unused(array, rows);
    return {on_.read(x), on_.read(x.x), reference::moments_by_row(array, rows)};
  }

  /// Nothing is written between the last row and where the next group begins.
  void check_unused(const std::vector<float>& moments, int rows) const {
    const size_t pitch = moments.size() / size(2 * n_ / kGroup);
    bool is_unused = true;
    for (size_t i = 0; i < moments.size(); ++i) {
      if (i / 2 % pitch >= static_cast<size_t>(rows)) is_unused &= std::isnan(moments[i]);
    }
    CHECK(is_unused);
  }

  void check_sums(const std::vector<float>& x) const {
    const std::vector<int64_t> columns = some_columns(n_);
    std::vector<double> expected =
        reference::product(to_double(a_), to_double(w_),
                           with_bias_ ? to_double(bias_) : std::vector<double>(), k_, columns);
    const std::vector<float> before = pick_columns(x_, n_, columns);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    // Nothing is rounded to T: what is left are the errors of fp32, or of the 22 bits of two fp16.
    check_close(pick_columns(x, n_, columns), expected, product_tolerance(DType::kF32));
  }

  /// What a product reads that normalizes the rows: the upper part of x, and moments. Those are of
  /// x before it became two fp16, 22 bits.
  void check_for_next(const Outputs& outputs) const {
    const float unit = dtype_ == DType::kF16 ? 1.0f / 16 : 1;
    std::vector<float> scaled;
    for (const float value : outputs.x) scaled.push_back(value * unit);
    check_rounded(outputs.upper, scaled, dtype_);
    check_close(outputs.moments, reference::moments(to_double(outputs.x)),
                dtype_ == DType::kF16 ? Tolerance{1e-4, 2e-5} : Tolerance{1e-5, 2e-6});
  }

  void check_same(const Outputs& some, const Outputs& whole, int first_row, int rows) const {
    const auto rows_of = [&](const std::vector<float>& values, int64_t width) {
      return std::span(values).subspan(size(first_row * width), size(rows * width));
    };
    check_same_bits(some.x, rows_of(whole.x, n_));
    if (on_.is_cpu()) return;
    check_same_bits(some.upper, rows_of(whole.upper, n_));
    check_same_bits(some.moments, rows_of(whole.moments, n_ / kGroup * 2));
  }

  Harness& on_;
  DType dtype_;
  int64_t n_, k_;
  Random random_;
  std::vector<float> a_, w_, bias_, x_;
  DeviceArray device_a_, device_w_, device_bias_;
  bool with_bias_;
};

}  // namespace

DEVICE_TEST(
    "gemm_residual: every row is added to, whatever shares the batch and whatever the tile") {
  std::vector<Shape> shapes = {{96, 72}, {32, 8}};
  if (on.is_cpu()) shapes.insert(shapes.end(), {{104, 72}, {8, 8}});
  if (on.is_thorough()) shapes.insert(shapes.end(), {{768, 768}, {768, 1152}, {1024, 2624}});
  for (const DType dtype : on.dtypes()) {
    std::vector<model::Op> ops;
    for (const Shape& s : shapes) {
      ops.push_back(model::gemm_residual_op(on.target(), dtype, s.n, s.k));
    }
    on.prepare(ops);
    for (size_t i = 0; i < shapes.size(); ++i) {
      CAPTURE(ops[i].variants.front().spec.to_string());
      for (const bool with_bias : {false, true}) {
        GemmResidual(on, dtype, shapes[i], with_bias).check(ops[i]);
      }
    }
  }
}

DEVICE_TEST("gemm_residual: all of Hopper's tiles give the same bits") {
  if (on.target().name != "sm_90a") return;
  // More tiles than there are multiprocessors. The last slab of k and the last tile of a row are
  // short; or not, and a block's tiles come to the same slots of its ring again.
  std::vector<Shape> shapes = {{1056, 72}, {160, 2120}};
  if (on.is_thorough()) shapes = {{2080, 1160}, {2080, 1152}, {2080, 2120}, {2080, 64}};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const Shape& shape : shapes) {
      const model::Op op = model::gemm_residual_op(on.target(), dtype, shape.n, shape.k);
      const auto base = model::product_base(op.variants.front().spec);
      model::Op all = with_tiles(op, model::ranked_product_tiles(*base, 64));
      for (size_t i = 0, count = all.variants.size(); i < count; ++i) {
        model::Variant few_blocks = all.variants[i];
        if (model::word_param(few_blocks.spec, "X_RING") == "no") continue;
        // Two clusters have all tiles: x comes to the same slots again and again.
        few_blocks.rule.max_blocks = 2 * model::int_param(few_blocks.spec, "CLUSTER");
        all.variants.push_back(std::move(few_blocks));
      }
      on.prepare({all});
      GemmResidual(on, dtype, shape, true).check(all);
    }
  }
}

}  // namespace laya::test
