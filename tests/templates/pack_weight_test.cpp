#include "tests/templates/harness.h"

namespace laya::test {
namespace {

using model::DType;

int64_t panel_columns(const jit::KernelSpec& spec) {
  for (const jit::Param& param : spec.params()) {
    if (param.name == "NR") return std::get<int64_t>(param.value);
  }
  return 0;
}

/// The layout as its definition says: panel, then k, then column of the panel.
std::vector<float> packed(const std::vector<float>& w, int64_t n, int64_t k, int64_t nr,
                          bool geglu) {
  const int64_t columns = geglu ? nr / 2 : nr;
  std::vector<float> result;
  for (int64_t panel = 0; panel * columns < n; ++panel) {
    for (int64_t step = 0; step < k; ++step) {
      for (int64_t i = 0; i < nr; ++i) {
        const int64_t column = panel * columns + i % columns;
        const int64_t row = i < columns ? column : n + column;
        result.push_back(column < n ? w[static_cast<size_t>(row * k + step)] : 0.0f);
      }
    }
  }
  return result;
}

}  // namespace

TEST_CASE("pack_weight: panels hold the columns k by k, and zeros past the end") {
  Harness& on = cpu_harness();
  for (const bool geglu : {false, true}) {
    for (const auto& [n, k] : {std::pair{768, 64}, {8, 72}, {104, 8}, {1000, 24}}) {
      CAPTURE(geglu);
      CAPTURE(n);
      Random random(7);
      const size_t elements = static_cast<size_t>(geglu ? 2 * n * k : n * k);
      const std::vector<float> w = random.values(elements, -1, 1);
      const model::Op op = model::pack_weight_op(on.target(), DType::kF32, geglu);
      const int64_t size = model::packed_weight_size(on.target(), DType::kF32, n, k, geglu);
      const DeviceArray device_w = on.floats(w);
      const DeviceArray out = on.output(static_cast<size_t>(size));
      on.run(op, n, device_w, out, n, k);
      const int64_t nr = panel_columns(op.variants.front().spec);
      check_same_bits(on.read(out), packed(w, n, k, nr, geglu));
    }
  }
}

TEST_CASE("pack_weight: no rows, nothing written") {
  Harness& on = cpu_harness();
  const model::Op op = model::pack_weight_op(on.target(), DType::kF32, false);
  const DeviceArray w = on.floats({}), out = on.output(0);
  on.run(op, 0, w, out, 0, 8);
  on.launch(op.variants.front().spec, {.grid = {3}}, w, out, 0, 8);
  CHECK(on.read(out).empty());
}

}  // namespace laya::test
