// The tiles of the CPU's products: a function of the target alone.
#include <doctest/doctest.h>

#include "model/ops.h"
#include "model/tiles.h"

namespace laya::test {
namespace {

using model::Activation, model::DType, model::int_param;

jit::Target cpu(const char* name) {
  return {jit::Backend::kCpu, name};
}

const jit::Target kSapphireRapids = cpu("x86_64:sapphirerapids:+avx,+avx512f,+avx512fp16");
const jit::Target kZen4 = cpu("x86_64:znver4:+avx,+avx512f");
const jit::Target kZen6 = cpu("x86_64:znver6:+avx,+avx512f,+avx512fp16");
const jit::Target kHaswell = cpu("x86_64:haswell:+avx,+avx2");
const jit::Target kOldest = cpu("x86_64:x86-64:+sse2");

jit::KernelSpec gemm_on(const jit::Target& target) {
  const model::Op op = model::gemm_op(target, DType::kF32, 768, 1024, Activation::kNone);
  REQUIRE(op.variants.size() == 1);
  return op.variants.front().spec;
}

TEST_CASE("tall tiles and long parts of panels are for Intel's servers with large caches") {
  const jit::KernelSpec spec = gemm_on(kSapphireRapids);
  CHECK(int_param(spec, "MR") == 8);
  CHECK(int_param(spec, "NR") == 48);
  CHECK(int_param(spec, "PART") == 1 << 20);
  // The next panel is fetched for K = 3072; panels of K = 4096 have no room beside each other.
  CHECK(int_param(spec, "FETCH") >= 4 * 3072 * 48);
  CHECK(int_param(spec, "FETCH") < 4 * 4096 * 48);
  for (const jit::Target& target : {kZen4, kZen6}) {
    CHECK(int_param(gemm_on(target), "MR") == 6);
    CHECK(int_param(gemm_on(target), "NR") == 64);
    CHECK(int_param(gemm_on(target), "PART") == 320 << 10);
  }
}

TEST_CASE("a packed weight is as wide as the panels of the products that read it") {
  for (const jit::Target& target : {kSapphireRapids, kZen4, kHaswell, kOldest}) {
    CAPTURE(target.name);
    const int64_t columns = int_param(gemm_on(target), "NR");
    const model::Op pack = model::pack_weight_op(target, DType::kF32, false);
    CHECK(int_param(pack.variants.front().spec, "NR") == columns);
    const int64_t panels = (1000 + columns - 1) / columns;
    CHECK(model::packed_weight_size(target, DType::kF32, 1000, 64, false) == panels * columns * 64);
  }
}

}  // namespace
}  // namespace laya::test
