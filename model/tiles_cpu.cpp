// Tiles of the CPU kernels. One variant serves all row counts: a register tile adapts to the rows
// at run time, and the grid splits the work finely enough for several threads.
#include <limits>

#include "model/ops.h"
#include "model/tiles.h"

namespace laya::model {
namespace {

/// How a product is computed, see templates/cpu/register_tile.h.
struct GemmTile {
  int64_t columns;  ///< NR, of a panel of the packed weight: 2 to 4 vectors
  int64_t rows;     ///< MR
  int64_t part;     ///< PART
  int64_t fetch;    ///< FETCH
};

/// 2 MiB of L2 cache and an L1 cache of 48 KiB in 12 ways: Intel's servers since Sapphire Rapids,
/// which are those with fp16.
bool has_large_caches(const jit::Target& target) {
  return jit::has_cpu_feature(target, "avx512fp16") && !target.name.starts_with("x86_64:znver");
}

/// Depends on the target alone: a packed weight must fit every kernel that reads it.
/// So many rows whose distance is a multiple of 4096 bytes stay in the L1 cache beside a panel that
/// streams through: 6 of 8 ways, 8 of 12. A taller tile asks less of a panel, which comes from the
/// L3 cache when there are few rows. The part of a panel is a third or half of the L2 cache, of
/// which this panel and the next fill at most two thirds.
GemmTile gemm_tile(const jit::Target& target) {
  constexpr int64_t kKiB = 1 << 10;
  if (has_large_caches(target)) return {48, 8, 1024 * kKiB, 640 * kKiB};
  if (jit::has_cpu_feature(target, "avx512f")) return {64, 6, 320 * kKiB, 320 * kKiB};
  if (jit::has_cpu_feature(target, "avx")) return {16, 6, 320 * kKiB, 80 * kKiB};
  if (target.name.starts_with("aarch64:")) return {16, 6, 320 * kKiB, 80 * kKiB};
  return {8, 6, 320 * kKiB, 80 * kKiB};
}

int64_t panels(int64_t columns, int64_t panel_columns) {
  return (columns + panel_columns - 1) / panel_columns;
}

Tile gemm_tiles(const jit::KernelSpec& base, bool geglu) {
  const GemmTile tile = gemm_tile(base.target());
  const int64_t panel_columns = geglu ? tile.columns / 2 : tile.columns;
  // Of each block the panel is read once: the more rows, the fewer passes over the weight. The rows
  // are read again for every panel: up to K = 1024 so many stay in an L2 cache of 1 MiB in fp32,
  // and a longer K pays for reading them from L3.
  constexpr int64_t kRows = 192;
  return {.max_rows = std::numeric_limits<int64_t>::max(),
          .params = {{"MR", tile.rows},
                     {"NR", tile.columns},
                     {"PART", tile.part},
                     {"FETCH", tile.fetch}},
          .rule = {.rows_per_block = kRows,
                   .blocks_per_group = panels(int_param(base, "N"), panel_columns)},
          .code = kLargeCode};
}

Tile pack_tiles(const jit::KernelSpec& base) {
  const int64_t columns = gemm_tile(base.target()).columns;
  const bool geglu = word_param(base, "GEGLU") == "yes";
  return {.max_rows = std::numeric_limits<int64_t>::max(),
          .params = {{"NR", columns}},
          .rule = {.rows_per_block = geglu ? columns / 2 : columns}};
}

Tile attention_tiles(const jit::KernelSpec& base) {
  constexpr int64_t kQueries = 32;
  return {.max_rows = std::numeric_limits<int64_t>::max(),
          .params = {{"BQ", kQueries}},
          .rule = {.rows_per_block = kQueries, .blocks_per_group = int_param(base, "HEADS")},
          .code = kLargeCode};
}

/// Kernels that follow any grid: only large enough blocks to be worth handing to a thread.
Tile row_tiles(int64_t rows_per_block) {
  return {.max_rows = std::numeric_limits<int64_t>::max(),
          .params = {},
          .rule = {.rows_per_block = rows_per_block}};
}

}  // namespace

std::vector<Tile> cpu_tiles(const jit::KernelSpec& base) {
  const std::string& name = base.template_name();
  if (name == "gemm" || name == "gemm_residual") return {gemm_tiles(base, false)};
  if (name == "gemm_geglu") return {gemm_tiles(base, true)};
  if (name == "pack_weight") return {pack_tiles(base)};
  if (name == "attention") return {attention_tiles(base)};
  if (name == "score") return {row_tiles(64)};
  if (name == "action_head") return {row_tiles(1)};
  return {row_tiles(16)};
}

Op pack_weight_op(const jit::Target& target, DType dtype, bool geglu) {
  jit::KernelSpec spec("pack_weight", target);
  spec.set("T", to_string(dtype)).set("GEGLU", geglu ? "yes" : "no");
  return {{with_tile(spec, pack_tiles(spec))}};
}

int64_t packed_weight_size(const jit::Target& target, DType, int64_t n, int64_t k, bool geglu) {
  const int64_t columns = gemm_tile(target).columns;
  return panels(n, geglu ? columns / 2 : columns) * columns * k;
}

}  // namespace laya::model
