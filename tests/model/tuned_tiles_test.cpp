#include "model/tuned_tiles.h"

#include <limits>

#include "tests/model/support.h"
#include "tests/temp_dir.h"

namespace laya::model {
namespace {

constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();
const jit::Target kHopper{jit::Backend::kCuda, "sm_90a"};
const TuningProvenance kBench{"NVIDIA H200", "fastest of 8"};

jit::KernelSpec attn_out() {
  jit::KernelSpec base("gemm_residual", kHopper);
  return base.set("T", "bf16").set("N", int64_t{768}).set("K", int64_t{768});
}

Plan base_plan(const jit::Target& target, DType dtype) {
  return make_plan(test::value_of(preset_config("base")), {DType::kF16, dtype}, target);
}

std::unique_ptr<cache::Store> open_store(const test::TempDir& directory) {
  cache::StoreOptions options;
  options.directory = directory.path();
  return cache::Store::open(options);
}

}  // namespace

TEST_CASE("a stored choice of tiles replaces the plan's own, for that product alone") {
  const test::TempDir directory;
  const ProductTile few{64, 32, 1, 1, false}, many{64, 128, 1, 2, false, 1, true};
  {
    const auto store = open_store(directory);
    REQUIRE(store_tuned_tiles(*store, attn_out(), {{256, few}, {kAnyRows, many}}, kBench));
  }
  const auto store = open_store(directory);  // as a later process finds it
  const Plan plan = with_tuned_tiles(base_plan(kHopper, DType::kBF16), *store);
  const std::vector<Variant>& variants = plan.attn_out.multiply.variants;
  REQUIRE(variants.size() == 2);
  CHECK(variants[0].max_rows == 256);
  CHECK(int_param(variants[0].spec, "BN") == 32);
  CHECK(variants[1].max_rows == kAnyRows);
  CHECK(int_param(variants[1].spec, "BN") * int_param(variants[1].spec, "CLUSTER") == 128);
  CHECK(word_param(variants[0].spec, "X_RING") == "no");
  CHECK(word_param(variants[1].spec, "X_RING") == "yes");
  CHECK(word_param(variants[1].spec, "T") == "bf16");
  const Plan untuned = base_plan(kHopper, DType::kBF16);
  CHECK(plan.qkv.multiply.variants.size() == untuned.qkv.multiply.variants.size());
  CHECK(plan.qkv.multiply.variants[0].spec == untuned.qkv.multiply.variants[0].spec);
}

TEST_CASE("a choice of tiles is taken from a layer where the cache has none") {
  const test::TempDir shared, own;
  {
    const auto store = open_store(shared);
    REQUIRE(store_tuned_tiles(*store, attn_out(), {{kAnyRows, {64, 32, 1, 1, false}}}, kBench));
  }
  const auto store = open_store(own);
  cache::Layers layers({shared.path()}, {});
  CHECK(find_tuned_tiles(*store, attn_out()).empty());
  CHECK(find_tuned_tiles(*store, attn_out(), &layers).size() == 1);
  const Plan plan = with_tuned_tiles(base_plan(kHopper, DType::kBF16), *store, &layers);
  CHECK(plan.attn_out.multiply.variants.size() == 1);
}

TEST_CASE("a choice of tiles travels in a bundle, used as a layer or imported") {
  const test::TempDir tuned, own;
  const auto bundle = own.path() / "kernels.laya";
  {
    const auto store = open_store(tuned);
    REQUIRE(store_tuned_tiles(*store, attn_out(), {{kAnyRows, {64, 32, 1, 1, false}}}, kBench));
    REQUIRE(store->export_bundle(bundle, test::value_of(store->list()), {}));
  }
  const auto store = open_store(own);
  cache::Layers layers({bundle}, {});
  CHECK(find_tuned_tiles(*store, attn_out(), &layers).size() == 1);
  CHECK(test::value_of(store->import_bundle(bundle)).added == 1);
  CHECK(find_tuned_tiles(*store, attn_out()).size() == 1);
}

TEST_CASE("other dtypes and targets are not touched by a choice of tiles") {
  const test::TempDir directory;
  const auto store = open_store(directory);
  REQUIRE(store_tuned_tiles(*store, attn_out(), {{kAnyRows, {64, 32, 1, 1, false}}}, kBench));
  for (const auto& [target, dtype] :
       {std::pair{kHopper, DType::kF16}, std::pair{kHopper, DType::kF32},
        std::pair{jit::Target{jit::Backend::kCuda, "sm_80"}, DType::kBF16}}) {
    const Plan plan = with_tuned_tiles(base_plan(target, dtype), *store);
    CHECK(plan.specs() == base_plan(target, dtype).specs());
  }
}

TEST_CASE("a choice that names no tile of this version, or not all row counts, is ignored") {
  const test::TempDir directory;
  const auto store = open_store(directory);
  const ProductTile good{64, 32, 1, 1, false}, unknown{96, 32, 1, 1, false};
  for (const std::vector<TunedTile>& tiles :
       {std::vector<TunedTile>{{kAnyRows, unknown}}, {{256, good}}, {{256, good}, {64, good}}}) {
    REQUIRE(store_tuned_tiles(*store, attn_out(), tiles, kBench));
    CHECK(find_tuned_tiles(*store, attn_out()).empty());
  }
  REQUIRE(store_tuned_tiles(*store, attn_out(), {{256, good}, {kAnyRows, good}}, kBench));
  CHECK(find_tuned_tiles(*store, attn_out()).size() == 2);
}

TEST_CASE("what a choice of tiles is and where it comes from shows in the list of the cache") {
  const test::TempDir directory;
  const auto store = open_store(directory);
  REQUIRE(store_tuned_tiles(*store, attn_out(), {{kAnyRows, {64, 32, 1, 1, false}}}, kBench));
  const auto entries = test::value_of(store->list());
  REQUIRE(entries.size() == 1);
  CHECK(test::contains(entries[0].metadata, "tiles of gemm_residual{"));
  CHECK(test::contains(entries[0].metadata, "NVIDIA H200"));
}

}  // namespace laya::model
