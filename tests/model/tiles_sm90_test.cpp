#include "model/tiles_sm90.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "model/measured_tiles.h"
#include "model/ops.h"

namespace laya::model {
namespace {

const jit::Target kHopper{jit::Backend::kCuda, "sm_90a"};

jit::KernelSpec product(const char* name, const char* dtype, int64_t n, int64_t k) {
  jit::KernelSpec spec(name, kHopper);
  spec.set("T", dtype).set("K", k);
  if (std::string_view(name) == "gemm_rope") {
    return spec.set("HEADS", n / 192).set("HEAD_DIM", int64_t{64});
  }
  spec.set("N", n);
  if (std::string_view(name) == "gemm") spec.set("ACT", "none");
  return spec;
}

bool is_shared(const Tile& tile) {
  for (const jit::Param& param : tile.params) {
    if (param.name == "SHARED") return std::get<std::string>(param.value) == "yes";
  }
  return false;
}

int64_t value(const Tile& tile, const char* name) {
  for (const jit::Param& param : tile.params) {
    if (param.name == name) return std::get<int64_t>(param.value);
  }
  FAIL("no parameter " << name);
  return 0;
}

struct Shape {
  const char* name;
  int64_t n, k;
};
constexpr Shape kShapes[] = {{"gemm", 2304, 768},
                             {"gemm", 768, 768},
                             {"gemm", 768, 3072},
                             {"gemm", 4096, 1024},
                             {"gemm", 32, 8},
                             {"gemm", 224, 72},
                             {"gemm_geglu", 1152, 768},
                             {"gemm_geglu", 16, 8},
                             {"gemm_geglu", 2624, 1024},
                             {"gemm_residual", 768, 768},
                             {"gemm_residual", 1024, 2624},
                             {"gemm_residual", 768, 3072},
                             {"gemm_residual", 768, 64}};

TEST_CASE("tiles of Hopper products fit the chip and what the templates ask for") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.name);
    CAPTURE(shape.n);
    const std::vector<Tile> tiles = sm90_tiles(product(shape.name, "bf16", shape.n, shape.k));
    REQUIRE(!tiles.empty());
    const bool is_geglu = std::string_view(shape.name) == "gemm_geglu";
    for (const Tile& tile : tiles) {
      const int64_t rows = value(tile, "BM"), box = value(tile, "BN");
      const int64_t cluster = value(tile, "CLUSTER");
      const int64_t split = is_geglu ? 1 : value(tile, "SPLIT");
      const int64_t columns = box * (is_geglu ? 2 : cluster);  // of the product in registers
      CHECK(tile.template_name == std::string(shape.name) + "_sm90");
      CHECK(tile.rule.dynamic_shared_bytes <= 227 * 1024);
      CHECK(tile.rule.threads == 128 * (value(tile, "CONSUMERS") + 1));
      CHECK(box % (is_geglu ? 16 : 32) == 0);
      CHECK(columns <= 256);
      const int64_t group_rows = is_shared(tile) ? rows / value(tile, "CONSUMERS") : rows;
      CHECK(group_rows % 64 == 0);
      // Registers for sums, and beside them those of chunks of k, moments, or x.
      const bool is_residual = std::string_view(shape.name) == "gemm_residual";
      const int64_t chunked_sums = is_residual ? 96 : 64;
      const int64_t most_sums = shape.k >= 2048 && split == 1 ? chunked_sums : 128;
      CHECK(group_rows / 64 * columns / 2 <= most_sums);
      CHECK((split == 1 || split == 2 || split == 4));
      CHECK((split == 1 || (shape.k >= 2048 && cluster == 1 && columns % (32 * split) == 0)));
      CHECK(value(tile, "STAGES") >= 2);
      for (const int64_t run : {1, 63, 64, 129, 1000, 32768}) {
        CHECK(tile.rule.shape(run).grid.x % (cluster * split) == 0);
        if (split == 1) CHECK(tile.rule.shape(run).grid.x <= 132);
      }
      CHECK(tile.rule.shape(0).grid.x == 0);
    }
  }
}

TEST_CASE(
    "Hopper's ring has slots for all boxes of the residual stream that a consumer waits for, and "
    "in each of them one for each block that shares w") {
  for (const int64_t k : {8, 64, 128, 768, 2624}) {
    const jit::KernelSpec base = product("gemm_residual", "bf16", 768, k);
    for (const ProductTile& tile : ranked_product_tiles(base, 64)) {
      CAPTURE(product_variant(base, tile, 64).spec.to_string());
      CHECK(tile.columns % 32 == 0);
      const Tile whole = product_tile(base, tile, 64);
      CHECK(value(whole, "STAGES") >= 2);
      CHECK(whole.rule.dynamic_shared_bytes <= 227 * 1024);
      const int64_t slot_boxes = 1 + tile.columns / tile.rows;
      const int64_t boxes = 2 * ((tile.columns + 63) / 64);  // of both parts
      const int64_t slots = (boxes + slot_boxes - 1) / slot_boxes;
      if (tile.split > 1 || tile.x_ring) continue;  // not through the ring
      CHECK(value(whole, "STAGES") >= slots);
      CHECK(std::min(slot_boxes, boxes - (slots - 1) * slot_boxes) >= tile.cluster);
    }
  }
}

TEST_CASE("tiles of Hopper products cover all row counts in ascending order") {
  for (const Shape& shape : kShapes) {
    const std::vector<Tile> tiles = sm90_tiles(product(shape.name, "fp16", shape.n, shape.k));
    REQUIRE(!tiles.empty());
    for (size_t i = 1; i < tiles.size(); ++i) CHECK(tiles[i - 1].max_rows < tiles[i].max_rows);
    CHECK(tiles.back().max_rows == INT64_MAX);
  }
}

TEST_CASE("products of the presets get measured tiles, all others estimated ones") {
  const auto params_of = [](const Tile& tile) { return tile.params; };
  for (const auto& [name, n, k] : {Shape{"gemm", 2304, 768},
                                   {"gemm", 3072, 768},
                                   {"gemm", 3072, 1024},
                                   {"gemm", 4096, 1024},
                                   {"gemm_geglu", 1152, 768},
                                   {"gemm_geglu", 2624, 1024},
                                   {"gemm_residual", 768, 768},
                                   {"gemm_residual", 768, 1152},
                                   {"gemm_residual", 768, 3072},
                                   {"gemm_residual", 1024, 1024},
                                   {"gemm_residual", 1024, 2624},
                                   {"gemm_residual", 1024, 4096},
                                   {"gemm_rope", 2304, 768},
                                   {"gemm_rope", 3072, 1024}}) {
    CAPTURE(name);
    const jit::KernelSpec base = product(name, "bf16", n, k);
    const auto measured = measured_tiles(name, n, k);
    const std::vector<Tile> tiles = sm90_tiles(base);
    const std::vector<ProductTile> all = ranked_product_tiles(base, 64);
    REQUIRE(!measured.empty());
    REQUIRE(tiles.size() == measured.size());
    for (size_t i = 0; i < tiles.size(); ++i) {
      CHECK(tiles[i].max_rows == measured[i].max_rows);
      CHECK(params_of(tiles[i]) == params_of(product_tile(base, measured[i].tile, 1)));
      CHECK(std::find(all.begin(), all.end(), measured[i].tile) != all.end());
    }
  }
  CHECK(measured_tiles("gemm", 768, 768).empty());
}

TEST_CASE("products that run seldom get fewer kernels") {
  size_t often = 0, seldom = 0;
  for (const Shape& shape : {Shape{"gemm", 768, 768}, {"gemm", 2048, 768}, {"gemm", 5120, 1280}}) {
    const jit::KernelSpec base = product("gemm", "bf16", shape.n, shape.k);
    const size_t count = sm90_tiles(base, Use::kOften).size();
    const size_t seldom_count = sm90_tiles(base, Use::kSeldom).size();
    CHECK(seldom_count <= count);
    often += count;
    seldom += seldom_count;
  }
  CHECK(seldom < often);
}

TEST_CASE("few rows are spread over many blocks, many rows get large tiles") {
  const std::vector<Tile> tiles = sm90_tiles(product("gemm", "bf16", 768, 768));
  REQUIRE(tiles.size() > 1);
  CHECK(tiles.front().rule.shape(64).grid.x >= 24);
  CHECK(value(tiles.back(), "BM") == 128);
  CHECK(value(tiles.back(), "BN") * value(tiles.back(), "CLUSTER") >= 96);
}

TEST_CASE("blocks split k where it is long and rows are few, and only there") {
  const auto splits = [](const Tile& tile) { return value(tile, "SPLIT") > 1; };
  const std::vector<Tile> tiles = sm90_tiles(product("gemm", "bf16", 1024, 2624));
  CHECK(splits(tiles.front()));
  CHECK_FALSE(splits(tiles.back()));
  for (const Tile& tile : sm90_tiles(product("gemm", "bf16", 768, 1152))) CHECK(!splits(tile));
}

TEST_CASE("there are Hopper tiles only for what Hopper's templates can do") {
  CHECK(sm90_tiles(product("gemm", "fp32", 768, 768)).empty());
  CHECK(sm90_tiles(product("rope", "bf16", 768, 768)).empty());
  jit::KernelSpec ampere("gemm", {jit::Backend::kCuda, "sm_80"});
  ampere.set("T", "bf16").set("N", int64_t{768}).set("K", int64_t{768});
  CHECK(sm90_tiles(ampere).empty());
  jit::KernelSpec attention("attention", kHopper);
  attention.set("T", "bf16").set("HEADS", int64_t{12}).set("WINDOW", int64_t{0});
  CHECK(sm90_tiles(jit::KernelSpec(attention).set("HEAD_DIM", int64_t{32})).empty());
  CHECK(sm90_tiles(attention.set("HEAD_DIM", int64_t{64})).size() == 2);
}

TEST_CASE("all tiles of one attention look at keys in the same blocks") {
  jit::KernelSpec base("attention", kHopper);
  base.set("T", "bf16").set("HEADS", int64_t{12}).set("HEAD_DIM", int64_t{64});
  for (const int64_t window : {0, 64}) {
    base.set("WINDOW", window);
    const std::vector<Tile> tiles = sm90_tiles(base);
    REQUIRE(!tiles.empty());
    for (const Tile& tile : tiles) {
      CHECK(value(tile, "KEYS") == value(tiles.front(), "KEYS"));
      CHECK(tile.rule.rows_per_block == value(tile, "BQ"));
      CHECK(tile.rule.dynamic_shared_bytes <= 227 * 1024);
    }
  }
}

}  // namespace
}  // namespace laya::model
