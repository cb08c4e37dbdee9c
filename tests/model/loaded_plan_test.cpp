#include "model/loaded_plan.h"

#include "tests/model/support.h"
#include "tests/temp_dir.h"

namespace laya::model {
namespace {

/// An engine with an empty cache that may not compile: no kernel can be had from it.
std::shared_ptr<jit::Engine> helpless_engine(const test::TempDir& directory, int jobs) {
  jit::Options options;
  options.cache_dir = directory.path();
  options.jit = jit::JitMode::kNever;
  options.jobs = jobs;
  return test::value_of(jit::Engine::create(std::move(options)));
}

Plan tiny_plan() {
  return make_plan(test::value_of(preset_config("tiny")), {DType::kF16, DType::kF32},
                   test::cpu_device()->target());
}

}  // namespace

TEST_CASE("where no kernel can be had, loading a plan ends and names the first op's kernel") {
  for (const int jobs : {1, 8}) {
    CAPTURE(jobs);
    const test::TempDir directory;
    const Plan plan = tiny_plan();
    const std::string first = plan.ops().front()->variants.front().spec.to_string();
    const auto loaded = LoadedPlan::load(plan, *helpless_engine(directory, jobs));
    REQUIRE_FALSE(loaded.has_value());
    CHECK(loaded.error().kind == ErrorKind::kNotCached);
    CHECK(test::contains(loaded.error().message, first));
  }
}

TEST_CASE("loading a plan again takes its kernels from memory") {
  const auto engine = test::shared_engine();
  if (engine->compiler(jit::Backend::kCpu).identity().empty()) {
    MESSAGE("[SKIP] CPU: " << engine->compiler(jit::Backend::kCpu).unavailable_reason());
    return;
  }
  REQUIRE(LoadedPlan::load(tiny_plan(), *engine));
  const jit::EngineStats before = engine->stats();
  REQUIRE(LoadedPlan::load(tiny_plan(), *engine));
  const jit::EngineStats after = engine->stats();
  CHECK(after.compiled == before.compiled);
  CHECK(after.disk_hits == before.disk_hits);
  CHECK(after.memory_hits > before.memory_hits);
}

}  // namespace laya::model
