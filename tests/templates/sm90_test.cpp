// What the compiler says about the templates for Hopper; needs NVRTC, but no GPU.
#include <doctest/doctest.h>

#include "jit/engine.h"
#include "model/ops.h"
#include "model/tiles_sm90.h"
#include "tests/temp_dir.h"

namespace laya::test {
namespace {

const jit::Target kHopper{jit::Backend::kCuda, "sm_90a"};

jit::KernelSpec gemm(const char* dtype, int64_t n, int64_t k, const char* act) {
  jit::KernelSpec spec("gemm", kHopper);
  return spec.set("T", dtype).set("N", n).set("K", k).set("ACT", act);
}

jit::KernelSpec attention(const char* dtype, int64_t window) {
  jit::KernelSpec spec("attention", kHopper);
  spec.set("T", dtype).set("HEADS", int64_t{12}).set("HEAD_DIM", int64_t{64});
  return spec.set("WINDOW", window);
}

TEST_CASE("Hopper kernels compile without spills and without products that wait for each other") {
  const TempDir cache;
  std::string complaints;
  jit::Options options;
  options.cache_dir = cache.path();
  options.log = [&](LogLevel, std::string_view line) { complaints.append(line) += '\n'; };
  const auto engine = jit::Engine::create(options);
  REQUIRE(engine.has_value());
  if ((*engine)->compiler(jit::Backend::kCuda).identity().empty()) {
    MESSAGE("[SKIP] " << (*engine)->compiler(jit::Backend::kCuda).unavailable_reason());
    return;
  }
  jit::KernelSpec geglu("gemm_geglu", kHopper);
  geglu.set("T", "bf16").set("N", int64_t{1152}).set("K", int64_t{768});
  jit::KernelSpec residual("gemm_residual", kHopper);
  residual.set("T", "bf16").set("N", int64_t{768}).set("K", int64_t{1152});
  jit::KernelSpec long_residual("gemm_residual", kHopper);
  long_residual.set("T", "fp16").set("N", int64_t{1024}).set("K", int64_t{2624});
  jit::KernelSpec rope("gemm_rope", kHopper);
  rope.set("T", "bf16").set("HEADS", int64_t{16}).set("HEAD_DIM", int64_t{64});
  rope.set("K", int64_t{1024});
  std::vector<jit::KernelSpec> specs;
  const auto add = [&](const jit::KernelSpec& base, const std::vector<model::ProductTile>& tiles) {
    for (const model::ProductTile& tile : tiles) {
      specs.push_back(model::product_variant(base, tile, INT64_MAX).spec);
    }
  };
  add(gemm("bf16", 768, 768, "none"), {{64, 32, 1, 1, false}, {128, 192, 2, 2, true}});
  add(gemm("fp16", 3072, 768, "relu"), {{128, 128, 2, 2, false}});
  add(gemm("bf16", 224, 136, "gelu"), {{64, 96, 1, 2, false}, {64, 224, 1, 2, false}});
  add(gemm("fp16", 1024, 2624, "none"), {{64, 128, 1, 1, true, 4},
                                         {128, 128, 1, 2, true, 4},
                                         {128, 128, 1, 2, true, 2},
                                         {128, 128, 1, 2, true},
                                         {128, 64, 2, 2, false}});
  add(geglu, {{64, 32, 1, 1, false},
              {64, 256, 1, 2, false},
              {128, 128, 2, 2, false},
              {128, 160, 1, 2, true}});
  add(rope, {{64, 160, 1, 2, false},
             {64, 224, 1, 2, false},
             {128, 128, 1, 2, false},
             {128, 224, 1, 2, true}});
  add(residual, {{64, 32, 1, 1, false},
                 {64, 128, 1, 2, false},
                 {64, 192, 1, 2, false},
                 {64, 256, 1, 2, false},
                 {128, 64, 1, 2, false},
                 {128, 96, 1, 2, false},
                 {128, 128, 1, 2, false},
                 {128, 128, 2, 2, false},
                 {128, 192, 1, 2, true},
                 {128, 256, 1, 2, true},
                 {128, 256, 2, 2, true},
                 {64, 192, 1, 2, false, 1, true},
                 {64, 256, 1, 2, false, 1, true},
                 {128, 128, 1, 2, false, 1, true},
                 {128, 128, 2, 2, false, 1, true}});
  add(long_residual, {{64, 96, 1, 2, false},
                      {64, 128, 1, 2, false},
                      {128, 64, 1, 2, false},
                      {128, 128, 2, 2, true},
                      {128, 192, 1, 2, true},
                      {128, 192, 2, 2, true},
                      {64, 128, 1, 2, false, 1, true},
                      {64, 192, 1, 2, false, 1, true},
                      {64, 128, 1, 1, true, 4},
                      {64, 64, 1, 1, true, 2}});
  for (const int64_t window : {0, 64}) {
    const jit::KernelSpec base = attention(window == 0 ? "bf16" : "fp16", window);
    for (const int64_t queries : {64, 128}) {
      const int64_t keys = window == 0 ? 128 : 64;
      const model::Tile tile = model::attention_tile(base, queries, keys, INT64_MAX);
      specs.push_back(model::with_tile(base, tile).spec);
    }
  }
  for (const jit::BuildReport& report : (*engine)->warm(specs)) {
    CAPTURE(report.spec.to_string());
    REQUIRE_MESSAGE(report.outcome.has_value(), report.outcome.error().to_string());
    CHECK(report.attributes.local_bytes == 0);
  }
  CHECK(complaints == "");
}

}  // namespace
}  // namespace laya::test
