// Products that normalize the rows they read: the consumers of what gemm_residual leaves.
#include <cmath>
#include <numeric>

#include "tests/templates/harness.h"
#include "tests/templates/products.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::Activation;
using model::DType;

constexpr int kRows = 333;
constexpr float kEps = 1e-5f;

/// Rows of a residual stream with their moments, as gemm_residual leaves them.
class Rows {
 public:
  Rows(Harness& on, DType dtype, int64_t columns)
      : on_(on), dtype_(dtype), columns_(columns), random_(static_cast<uint64_t>(columns)) {
    x_ = random_.values(size(kRows * columns), -3, 3);
    for (int64_t i = 0; i < columns; ++i) {
      x_[size(columns + i)] *= 1e-3f;     // hardly more than eps
      x_[size(2 * columns + i)] += 20;    // a mean above the deviation
      x_[size(3 * columns + i)] = 0.25f;  // no deviation
    }
    x_[size(4 * columns + 1)] = 30000;  // an outlier, as trained models have
    moments_ = reference::moments(to_double(x_));
    for (float& value : x_) value = rounded(value * unit(), dtype);
  }

  DeviceArray values() const { return on_.floats(x_, dtype_); }
  DeviceArray moments() const { return on_.floats(reference::moment_array(moments_, kRows)); }
  DeviceArray scales() const {
    const DeviceArray moments = this->moments();
    DeviceArray scales = on_.output(kRows);
    on_.run(model::row_scales_op(on_.target(), dtype_, columns_), kRows, moments, scales, kEps,
            kRows);
    on_.read(scales);  // waits: the moments go
    return scales;
  }
  std::vector<double> expected_scales() const {
    std::vector<double> scales;
    const int64_t groups = columns_ / 32;
    for (int64_t row = 0; row < kRows; ++row) {
      const double* first = &moments_[size(row * groups * 2)];
      double mean = 0, squares = 0;
      for (int64_t i = 0; i < groups; ++i) mean += first[2 * i] / double(groups);
      for (int64_t i = 0; i < groups; ++i) {
        squares += first[2 * i + 1] + 32 * std::pow(first[2 * i] - mean, 2);
      }
      scales.push_back(1 / (std::sqrt(squares / double(columns_) + kEps) * unit()));
    }
    return scales;
  }
  /// Of a * w^T, before a bias.
  std::vector<double> expected(const std::vector<float>& w,
                               std::span<const int64_t> columns) const {
    std::vector<double> product =
        reference::product(to_double(x_), to_double(w), {}, columns_, columns);
    const std::vector<double> scales = expected_scales();
    for (size_t i = 0; i < product.size(); ++i) product[i] *= scales[i / columns.size()];
    return product;
  }

 private:
  static size_t size(int64_t count) { return static_cast<size_t>(count); }
  float unit() const { return dtype_ == DType::kF16 ? 1.0f / 16 : 1; }

  Harness& on_;
  DType dtype_;
  int64_t columns_;
  Random random_;
  std::vector<float> x_;
  std::vector<double> moments_;
};

std::vector<int64_t> widths(const Harness& on) {
  if (!on.is_thorough()) return {64, 96};
  return {64, 96, 768, 1024, 2304};
}

/// Weights whose rows have a mean of about 0, as folding a norm leaves them.
std::vector<float> folded_weights(Random& random, DType dtype, int64_t rows, int64_t columns) {
  const float limit = std::sqrt(3.0f / static_cast<float>(columns));
  std::vector<float> w = random.values(static_cast<size_t>(rows * columns), -limit, limit);
  for (auto row = w.begin(); row != w.end(); row += columns) {
    const double mean = std::accumulate(row, row + columns, 0.0) / double(columns);
    for (auto value = row; value != row + columns; ++value) {
      *value = rounded(static_cast<float>(*value - mean), dtype);
    }
  }
  return w;
}

/// Results are of order 1, but for the row without deviation: there it is rounding times 300.
Tolerance norm_tolerance(DType dtype) {
  return dtype == DType::kF32 ? Tolerance{3e-4, 1e-5} : tolerance_of(dtype);
}

/// `run(scales, moments, out)` launches one variant.
template <class Run>
void check_norm(Harness& on, const Rows& rows, DType dtype, int64_t n,
                const std::vector<double>& expected, Run run) {
  const DeviceArray from_moments = on.output(static_cast<size_t>(kRows * n), dtype);
  const DeviceArray moments = rows.moments(), scales = rows.scales();
  run(kNoArray, moments.data(), from_moments);
  const std::vector<float> values = on.read(from_moments);
  check_close(pick_columns(values, n, some_columns(n)), expected, norm_tolerance(dtype));
  const DeviceArray from_scales = on.output(static_cast<size_t>(kRows * n), dtype);
  run(scales.data(), kNoArray, from_scales);
  check_same_bits(on.read(from_scales), values);
}

}  // namespace

DEVICE_TEST("row_scales: one over the deviation, also of rows far from zero") {
  if (on.is_cpu()) return;
  for (const DType dtype : on.dtypes()) {
    for (const int64_t columns : widths(on)) {
      CAPTURE(columns);
      const Rows rows(on, dtype, columns);
      check_close(on.read(rows.scales()), rows.expected_scales(), {1e-6, 3e-6});
    }
  }
}

DEVICE_TEST("gemm: rows are normalized, by moments as by scales, in every chosen tile") {
  if (on.is_cpu()) return;
  constexpr int64_t kN = 160;
  for (const DType dtype : on.dtypes()) {
    for (const int64_t k : widths(on)) {
      const model::Op op = model::gemm_op(on.target(), dtype, kN, k, Activation::kRelu);
      on.prepare({op});
      const Rows rows(on, dtype, k);
      Random random(7);
      const std::vector<float> w = folded_weights(random, dtype, kN, k);
      const std::vector<float> bias = random.values(kN, -1, 1);
      const std::vector<int64_t> columns = some_columns(kN);
      std::vector<double> expected = rows.expected(w, columns);
      for (size_t i = 0; i < expected.size(); ++i) {
        const double offset = bias[static_cast<size_t>(columns[i % columns.size()])];
        expected[i] = std::max(expected[i] + offset, 0.0);
      }
      const DeviceArray a = rows.values(), device_w = on.weight(w, dtype, kN, k, false);
      const DeviceArray device_bias = on.floats(bias);
      for (const model::Variant& variant : op.variants) {
        CAPTURE(variant.spec.to_string());
        check_norm(on, rows, dtype, kN, expected,
                   [&](const void* scales, const void* moments, const DeviceArray& out) {
                     on.run(variant, kRows, a, device_w, device_bias, scales, moments, out, kEps,
                            kRows);
                   });
      }
    }
  }
}

DEVICE_TEST("gemm_geglu: rows are normalized, by moments as by scales, in every chosen tile") {
  if (on.is_cpu()) return;
  constexpr int64_t kN = 112;
  for (const DType dtype : on.dtypes()) {
    for (const int64_t k : widths(on)) {
      const model::Op op = model::gemm_geglu_op(on.target(), dtype, kN, k);
      on.prepare({op});
      const Rows rows(on, dtype, k);
      Random random(8);
      const std::vector<float> u = folded_weights(random, dtype, kN, k);
      std::vector<float> w = folded_weights(random, dtype, kN, k);
      std::vector<double> expected = rows.expected(u, some_columns(kN));
      const std::vector<double> gates = rows.expected(w, some_columns(kN));
      for (size_t i = 0; i < gates.size(); ++i) {
        expected[i] = reference::gelu(expected[i]) * gates[i];
      }
      w.insert(w.begin(), u.begin(), u.end());
      const DeviceArray a = rows.values(), device_w = on.weight(w, dtype, kN, k, true);
      for (const model::Variant& variant : op.variants) {
        CAPTURE(variant.spec.to_string());
        check_norm(on, rows, dtype, kN, expected,
                   [&](const void* scales, const void* moments, const DeviceArray& out) {
                     on.run(variant, kRows, a, device_w, scales, moments, out, kEps, kRows);
                   });
      }
    }
  }
}

DEVICE_TEST("gemm_rope: rows are normalized, by moments as by scales, in every chosen tile") {
  if (on.is_cpu()) return;
  constexpr int kHeads = 2, kHeadDim = 64;
  constexpr int64_t kN = 3 * kHeads * kHeadDim;
  for (const DType dtype : on.dtypes()) {
    for (const int64_t k : widths(on)) {
      const model::Op op = model::gemm_rope_op(on.target(), dtype, kHeads, kHeadDim, k);
      if (op.variants.empty()) continue;  // no such kernel here
      on.prepare({op});
      const Rows rows(on, dtype, k);
      Random random(9);
      const std::vector<float> w = folded_weights(random, dtype, kN, k);
      // A quarter of a turn at every position: [x1, x2] becomes [-x2, x1].
      std::vector<float> quarter;
      for (int i = 0; i < kHeadDim / 2; ++i) quarter.insert(quarter.end(), {0, 1});
      const DeviceArray angles = on.floats(quarter);
      const DeviceArray positions = on.ints(std::vector<int>(kRows, 0));
      std::vector<int64_t> columns(kN);
      std::iota(columns.begin(), columns.end(), int64_t{0});
      const std::vector<double> turned = interleaved_heads(
          reference::rope(rows.expected(w, columns), std::vector<double>(kHeadDim / 2, 0),
                          std::vector<double>(kHeadDim / 2, 1), std::vector<int>(kRows, 0), kHeads,
                          kHeadDim),
          2 * kHeads, kN, 1);
      std::vector<double> expected;
      for (int64_t row = 0; row < kRows; ++row) {
        for (const int64_t column : some_columns(kN)) {
          expected.push_back(turned[static_cast<size_t>(row * kN + column)]);
        }
      }
      const DeviceArray a = rows.values();
      const DeviceArray device_w = on.weight(
          interleaved_heads(w, 2 * kHeads, w.size(), static_cast<size_t>(k)), dtype, kN, k, false);
      for (const model::Variant& variant : op.variants) {
        CAPTURE(variant.spec.to_string());
        check_norm(on, rows, dtype, kN, expected,
                   [&](const void* scales, const void* moments, const DeviceArray& out) {
                     on.run(variant, kRows, a, device_w, angles, positions, scales, moments, out,
                            kEps, kRows);
                   });
      }
    }
  }
}

}  // namespace laya::test
