#include <cmath>

#include "tests/templates/harness.h"
#include "tests/templates/products.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::Activation;
using model::DType;

constexpr int kMaxRows = 1001;
constexpr int kRowCounts[] = {0, 1, 2, 7, 64, 65, 130, 257};

struct Shape {
  int64_t n, k;
  bool bias;
  Activation activation;
};

constexpr Shape kShapes[] = {
    {2304, 768, false, Activation::kNone},  // base: qkv, linear1, scorer, out of the MLP
    {3072, 768, true, Activation::kRelu},   {768, 768, true, Activation::kGelu},
    {768, 1152, false, Activation::kNone},  {3072, 1024, true, Activation::kNone},  // large
    {1024, 2624, false, Activation::kNone}, {1024, 4096, true, Activation::kNone},
    {96, 64, false, Activation::kGelu},     {8, 72, true, Activation::kGelu},  // odd ones
    {104, 8, true, Activation::kRelu},      {160, 72, true, Activation::kGelu},
};

/// Every row of some columns against the reference; all columns of all other row counts and
/// variants against the bits of the first run. `run(variant, a, rows, out)` launches.
template <class Run>
void check_product(Harness& on, const model::Op& op, const DeviceArray& a, int64_t k, int64_t n,
                   const std::vector<double>& expected, Tolerance tolerance, Run run) {
  const auto result = [&](const model::Variant& variant, int first_row, int rows) {
    const DeviceArray out = on.output(static_cast<size_t>(rows * n), a.dtype());
    run(variant, a.at(static_cast<size_t>(first_row * k)), rows, out);
    return on.read(out);
  };
  const std::vector<float> whole = result(op.variants.front(), 0, kMaxRows);
  check_close(pick_columns(whole, n, some_columns(n)), expected, tolerance);
  for (const model::Variant& variant : op.variants) {
    CAPTURE(variant.spec.to_string());
    for (const int rows : kRowCounts) {
      CAPTURE(rows);
      check_same_bits(result(variant, 0, rows), first(whole, static_cast<size_t>(rows * n)));
    }
    check_same_bits(result(variant, 0, kMaxRows), whole);
    const std::vector<float> alone = result(variant, 57, 1);
    check_same_bits(alone, std::span(whole).subspan(static_cast<size_t>(57 * n), alone.size()));
  }
}

constexpr float kEps = 1e-5f;

/// Without a norm of the rows; only GPUs have arguments for one.
void run_gemm(Harness& on, const model::Variant& variant, int rows, const void* a,
              const DeviceArray& w, const void* bias, const DeviceArray& out) {
  if (on.is_cpu()) return on.run(variant, rows, a, w, bias, out, rows);
  on.run(variant, rows, a, w, bias, kNoArray, kNoArray, out, kEps, rows);
}

void check_gemm(Harness& on, const model::Op& op, DType dtype, const Shape& shape) {
  const auto& [n, k, with_bias, activation] = shape;
  CAPTURE(op.variants.front().spec.to_string());
  Random random(static_cast<uint64_t>(n * k));
  // Outputs of order 1 whatever k is.
  const float scale = std::sqrt(3.0f / static_cast<float>(k));
  const std::vector<float> a = random.values(static_cast<size_t>(kMaxRows * k), -1, 1, dtype);
  const std::vector<float> w = random.values(static_cast<size_t>(n * k), -scale, scale, dtype);
  const std::vector<float> bias = random.values(static_cast<size_t>(n), -1, 1);

  std::vector<double> expected =
      reference::product(to_double(a), to_double(w),
                         with_bias ? to_double(bias) : std::vector<double>(), k, some_columns(n));
  for (double& value : expected) value = reference::activate(value, activation);

  const DeviceArray device_a = on.floats(a, dtype), device_w = on.weight(w, dtype, n, k, false);
  const DeviceArray device_bias = on.floats(bias);
  void* const bias_address = with_bias ? device_bias.data() : kNoArray;
  check_product(on, op, device_a, k, n, expected, product_tolerance(dtype),
                [&](const model::Variant& variant, void* from, int rows, const DeviceArray& out) {
                  run_gemm(on, variant, rows, from, device_w, bias_address, out);
                });
}

model::Op gemm_op(const Harness& on, DType dtype, const Shape& s) {
  return model::gemm_op(on.target(), dtype, s.n, s.k, s.activation);
}

/// The same product in tiles of every kind that Hopper has, whatever would be chosen.
model::Op with_all_kinds_of_tiles(const model::Op& op) {
  return with_tiles(op, {{64, 32, 1, 1, false},     // one consumer
                         {64, 96, 1, 2, false},     // two that take tiles in turn
                         {128, 64, 2, 2, true},     // two blocks that share w, consumers share rows
                         {128, 64, 2, 2, false},    // the same, in turn
                         {64, 128, 1, 1, true, 4},  // four blocks that split k
                         {128, 128, 1, 2, true, 4},
                         {64, 64, 1, 1, true, 2},  // two, with two chunks each
                         {128, 128, 1, 2, true, 2}});
}

struct GegluShape {
  int64_t n, k;
};

constexpr GegluShape kGegluShapes[] = {{1152, 768}, {2624, 1024}, {96, 64},
                                       {8, 72},     {88, 64},     {112, 64}};

void check_geglu(Harness& on, const model::Op& op, DType dtype, const GegluShape& shape) {
  const auto& [n, k] = shape;
  CAPTURE(op.variants.front().spec.to_string());
  Random random(static_cast<uint64_t>(n * k));
  const float scale = std::sqrt(3.0f / static_cast<float>(k));
  const std::vector<float> a = random.values(static_cast<size_t>(kMaxRows * k), -1, 1, dtype);
  const std::vector<float> w = random.values(static_cast<size_t>(2 * n * k), -scale, scale, dtype);

  const std::vector<double> wide = to_double(w);
  const std::span<const double> weights(wide);
  const size_t half = static_cast<size_t>(n * k);
  const std::vector<double> rows = to_double(a);
  std::vector<double> expected =
      reference::product(rows, weights.first(half), {}, k, some_columns(n));
  const std::vector<double> gates =
      reference::product(rows, weights.subspan(half), {}, k, some_columns(n));
  for (size_t i = 0; i < gates.size(); ++i) expected[i] = reference::gelu(expected[i]) * gates[i];

  const DeviceArray device_a = on.floats(a, dtype), device_w = on.weight(w, dtype, n, k, true);
  check_product(
      on, op, device_a, k, n, expected, product_tolerance(dtype),
      [&](const model::Variant& variant, void* from, int row_count, const DeviceArray& out) {
        if (on.is_cpu()) return on.run(variant, row_count, from, device_w, out, row_count);
        on.run(variant, row_count, from, device_w, kNoArray, kNoArray, out, kEps, row_count);
      });
}

}  // namespace

DEVICE_TEST("gemm: every row is right, whatever shares the batch and whatever the tile") {
  std::vector<model::Op> ops;
  for (const DType dtype : on.dtypes()) {
    for (const Shape& s : kShapes) {
      if (is_wanted(on, s)) ops.push_back(gemm_op(on, dtype, s));
    }
  }
  on.prepare(ops);
  for (const DType dtype : on.dtypes()) {
    for (const Shape& shape : kShapes) {
      if (!is_wanted(on, shape)) continue;
      check_gemm(on, gemm_op(on, dtype, shape), dtype, shape);
    }
  }
}

DEVICE_TEST("gemm: Hopper's tiles of every kind give the same bits, also where blocks split k") {
  if (on.target().name != "sm_90a") return;
  constexpr Shape kRagged[] = {{224, 2120, true, Activation::kGelu},  // the last slab is short
                               {96, 4096, false, Activation::kNone},
                               {352, 328, true, Activation::kRelu}};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const size_t count = on.is_thorough() ? std::size(kRagged) : 1;
    std::vector<model::Op> ops;
    for (size_t i = 0; i < count; ++i) {
      ops.push_back(with_all_kinds_of_tiles(gemm_op(on, dtype, kRagged[i])));
    }
    on.prepare(ops);
    for (size_t i = 0; i < count; ++i) check_gemm(on, ops[i], dtype, kRagged[i]);
  }
}

DEVICE_TEST("gemm_geglu: every row is right, whatever shares the batch and whatever the tile") {
  const auto op_of = [&](DType dtype, const GegluShape& s) {
    return model::gemm_geglu_op(on.target(), dtype, s.n, s.k);
  };
  std::vector<model::Op> ops;
  for (const DType dtype : on.dtypes()) {
    for (const GegluShape& s : kGegluShapes) {
      if (is_wanted(on, s)) ops.push_back(op_of(dtype, s));
    }
  }
  on.prepare(ops);
  for (const DType dtype : on.dtypes()) {
    for (const GegluShape& s : kGegluShapes) {
      if (is_wanted(on, s)) check_geglu(on, op_of(dtype, s), dtype, s);
    }
  }
}

DEVICE_TEST("gemm_geglu: all of Hopper's tiles give the same bits") {
  if (on.target().name != "sm_90a") return;
  const GegluShape shape = on.is_thorough() ? GegluShape{1168, 136} : GegluShape{112, 64};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const model::Op op = model::gemm_geglu_op(on.target(), dtype, shape.n, shape.k);
    const auto base = model::product_base(op.variants.front().spec);
    const model::Op all = with_tiles(op, model::ranked_product_tiles(*base, 64));
    on.prepare({all});
    check_geglu(on, all, dtype, shape);
  }
}

DEVICE_TEST("gemm: GELU is exact over its whole range") {
  // With the identity as weight a product is its input.
  constexpr int kN = 32, kRows = 1024;  // what Hopper's kernel can do, too
  std::vector<float> identity(kN * kN, 0.0f);
  for (int i = 0; i < kN; ++i) identity[static_cast<size_t>(i * kN + i)] = 1;
  for (const DType dtype : on.dtypes()) {
    std::vector<float> a(kN * kRows);
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] =
          rounded(-40.0f + 80.0f * static_cast<float>(i) / static_cast<float>(a.size() - 1), dtype);
    }
    const float special[] = {0.0f, -0.0f, 1e-40f, -1e-40f, 0x1p-126f, 1e-20f, 40.0f, -40.0f};
    for (size_t i = 0; i < std::size(special); ++i) a[1000 + i] = rounded(special[i], dtype);
    std::vector<double> expected = to_double(a);
    for (double& value : expected) value = reference::gelu(value);

    const model::Op op = model::gemm_op(on.target(), dtype, kN, kN, Activation::kGelu);
    const DeviceArray device_a = on.floats(a, dtype);
    const DeviceArray device_w = on.weight(identity, dtype, kN, kN, false);
    const DeviceArray out = on.output(a.size(), dtype);
    run_gemm(on, op.choose(kRows), kRows, device_a.data(), device_w, kNoArray, out);
    const Tolerance rounding = tolerance_of(dtype);
    check_close(on.read(out), expected, {5e-7, dtype == DType::kF32 ? 3e-7 : rounding.relative});
  }
}

}  // namespace laya::test
