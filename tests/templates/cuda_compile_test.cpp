// What the compiler says about the CUDA templates on the oldest GPUs; needs NVRTC, but no GPU.
#include <doctest/doctest.h>

#include "jit/engine.h"
#include "model/ops.h"
#include "tests/temp_dir.h"

namespace laya::test {
namespace {

using model::Activation, model::DType;

/// An engine that can compile for CUDA, or null after saying why not.
std::shared_ptr<jit::Engine> compiling_engine(const TempDir& cache) {
  jit::Options options;
  options.cache_dir = cache.path();
  auto engine = jit::Engine::create(options);
  REQUIRE(engine.has_value());
  const jit::Compiler& compiler = (*engine)->compiler(jit::Backend::kCuda);
  if (!compiler.identity().empty()) return *engine;
  MESSAGE("[SKIP] " << compiler.unavailable_reason());
  return nullptr;
}

/// The largest variant, where registers are scarce.
jit::KernelSpec largest(const model::Op& op) {
  return op.variants.back().spec;
}

std::vector<jit::KernelSpec> kernels(const jit::Target& target, DType dtype) {
  return {largest(model::embed_norm_op(target, DType::kF16, dtype, 1024)),
          largest(model::gemm_op(target, dtype, 768, 768, Activation::kNone)),
          largest(model::gemm_op(target, dtype, 200, 136, Activation::kGelu)),
          largest(model::gemm_geglu_op(target, dtype, 1152, 768)),
          largest(model::gemm_residual_op(target, dtype, 768, 1152)),
          largest(model::row_scales_op(target, dtype, 1024)),
          largest(model::final_norm_op(target, dtype, 1024)),
          largest(model::rope_op(target, dtype, 12, 64)),
          largest(model::attention_op(target, dtype, 16, 64, 64))};
}

TEST_CASE("CUDA kernels compile for 7.5 and 8.0 without spills") {
  const TempDir cache;
  const auto engine = compiling_engine(cache);
  if (!engine) return;
  std::vector<jit::KernelSpec> specs = kernels({jit::Backend::kCuda, "sm_75"}, DType::kF16);
  for (const jit::KernelSpec& spec : kernels({jit::Backend::kCuda, "sm_80"}, DType::kBF16)) {
    specs.push_back(spec);
  }
  specs.push_back(
      largest(model::attention_op({jit::Backend::kCuda, "sm_80"}, DType::kF16, 12, 64, 0)));
  specs.push_back(
      largest(model::attention_op({jit::Backend::kCuda, "sm_75"}, DType::kF32, 12, 64, 0)));
  for (const jit::BuildReport& report : engine->warm(specs)) {
    CAPTURE(report.spec.to_string());
    REQUIRE_MESSAGE(report.outcome.has_value(), report.outcome.error().to_string());
    CHECK(report.attributes.local_bytes == 0);
  }
}

TEST_CASE("bf16 on a GPU that lacks it is an error that says what to use") {
  const TempDir cache;
  const auto engine = compiling_engine(cache);
  if (!engine) return;
  const jit::Target turing{jit::Backend::kCuda, "sm_75"};
  const std::vector<jit::KernelSpec> specs{
      largest(model::gemm_op(turing, DType::kBF16, 64, 64, Activation::kNone))};
  const auto reports = engine->warm(specs);
  REQUIRE_FALSE(reports[0].outcome.has_value());
  CHECK(reports[0].outcome.error().kind == ErrorKind::kCompileFailed);
  CHECK(reports[0].outcome.error().detail.find("use fp16 on this GPU") != std::string::npos);
}

}  // namespace
}  // namespace laya::test
