// Tile choices for CUDA. The launch rules and shared memory sizes repeat what each template's head
// says; the templates say why.
#include <algorithm>
#include <limits>

#include "model/tiles.h"
#include "model/tiles_sm90.h"

namespace laya::model {
namespace {

constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

jit::Param param(const char* name, int64_t value) {
  return {name, jit::ParamValue{value}};
}

/// The tile of gemm, gemm_geglu and gemm_residual: BM x BN per block, WM x WN per warp.
struct GemmTile {
  int64_t bm, bn, wm, wn, stages;
};

/// `parts`: matrices that share the BN columns (u and g of gemm_geglu).
Tile gemm_tile(const GemmTile& t, int64_t n, int64_t parts, int64_t max_rows) {
  const int64_t ring = t.stages * (t.bm + t.bn) * 128, sums = t.bm * (t.bn + 8) * 4;
  LaunchRule rule;
  rule.rows_per_block = t.bm;
  rule.blocks_per_group = ceil_div(n * parts, t.bn);
  rule.threads = static_cast<uint32_t>(32 * (t.bm / t.wm) * (t.bn / t.wn));
  rule.dynamic_shared_bytes = static_cast<uint32_t>(std::max(ring, sums));
  return {max_rows,
          {param("BM", t.bm), param("BN", t.bn), param("WM", t.wm), param("WN", t.wn),
           param("STAGES", t.stages)},
          rule,
          {},
          kLargeCode};
}

/// Small tiles as long as the next larger ones would leave most of a big GPU idle.
std::vector<Tile> gemm_tiles(const jit::KernelSpec& base) {
  constexpr int64_t kBlocksWanted = 128;  // about one for each multiprocessor of a big GPU
  const bool is_fp32 = word_param(base, "T") == "fp32";
  const int64_t parts = base.template_name() == "gemm_geglu" ? 2 : 1;
  const bool is_turing = jit::compute_capability(base.target()) < 80;  // 64 KiB, no async copies
  const GemmTile tiny{32, 32, 16, 16, is_turing ? 2 : 6};
  // Of fp32: two sums for each thread, since a sum is one long chain, and all there is in flight.
  const GemmTile nano =
      base.template_name() == "gemm" ? GemmTile{16, 16, 8, 8, 24} : GemmTile{16, 32, 16, 16, 8};
  const GemmTile small{64, 64, 32, 32, is_turing ? 2 : 4};
  const GemmTile large = is_turing ? GemmTile{128, 64, is_fp32 ? 32 : 64, 32, 2}
                         : is_fp32 ? GemmTile{128, 128, 32, 64, 3}
                                   : GemmTile{128, 128, 64, 64, 3};
  const int64_t n = int_param(base, "N");
  const auto rows_to_fill = [&](const GemmTile& t, int64_t blocks) {
    return std::max<int64_t>(1, blocks / ceil_div(n * parts, t.bn)) * t.bm;
  };
  const int64_t tiny_rows = rows_to_fill(small, kBlocksWanted / 2);
  const int64_t small_rows = std::max(tiny_rows + 1, rows_to_fill(large, kBlocksWanted));
  std::vector<Tile> tiles;
  if (is_fp32 && !is_turing && tiny_rows > nano.bm) {
    tiles.push_back(gemm_tile(nano, n, parts, nano.bm));
  }
  tiles.push_back(gemm_tile(tiny, n, parts, tiny_rows));
  tiles.push_back(gemm_tile(small, n, parts, small_rows));
  tiles.push_back(gemm_tile(large, n, parts, kAnyRows));
  return tiles;
}

/// One warp for a row of up to 1024 columns, so that a thread holds at most 32 values; more warps
/// for longer rows, and then one row a block.
std::vector<Tile> norm_tiles(const jit::KernelSpec& base) {
  int64_t row_threads = 32;
  while (row_threads < 512 && row_threads * 32 < int_param(base, "D")) row_threads *= 2;
  LaunchRule rule;
  rule.rows_per_block = std::max<int64_t>(1, 128 / row_threads);
  rule.threads = static_cast<uint32_t>(rule.rows_per_block * row_threads);
  return {
      {kAnyRows, {param("ROW_THREADS", row_threads), param("ROWS", rule.rows_per_block)}, rule}};
}

std::vector<Tile> rope_tiles(const jit::KernelSpec& base) {
  constexpr int64_t kThreads = 256;
  const int64_t row_units = 2 * int_param(base, "HEADS") * (int_param(base, "HEAD_DIM") / 16);
  LaunchRule rule;
  rule.rows_per_block = std::clamp<int64_t>(kThreads / row_units, 1, 256);
  rule.threads = kThreads;
  return {{kAnyRows, {param("ROWS", rule.rows_per_block)}, rule}};
}

Tile attention_tile(const jit::KernelSpec& base, int64_t bq, int64_t max_rows) {
  const int64_t head_dim = int_param(base, "HEAD_DIM");
  const bool is_fp32 = word_param(base, "T") == "fp32";
  const int64_t shared = is_fp32 ? (bq + 128) * head_dim * 4 + bq * 160 : (bq + 256) * head_dim * 2;
  LaunchRule rule;
  rule.rows_per_block = bq;
  rule.blocks_per_group = int_param(base, "HEADS");
  rule.threads = 128;
  rule.dynamic_shared_bytes = static_cast<uint32_t>(shared);
  return {max_rows, {param("BQ", bq)}, rule, {}, kLargeCode};
}

/// With 128 queries a block makes twice the use of each key that it loads. That needs the registers
/// of two rows of fragments a warp, many blocks, and pays only where every query sees every key.
std::vector<Tile> attention_tiles(const jit::KernelSpec& base) {
  constexpr int64_t kBlocksWanted = 256;
  const bool large_pays = word_param(base, "T") != "fp32" && int_param(base, "HEAD_DIM") <= 64 &&
                          int_param(base, "WINDOW") == 0 &&
                          jit::compute_capability(base.target()) >= 80;
  if (!large_pays) return {attention_tile(base, 64, kAnyRows)};
  const int64_t small_rows = 128 * ceil_div(kBlocksWanted, int_param(base, "HEADS"));
  return {attention_tile(base, 64, small_rows), attention_tile(base, 128, kAnyRows)};
}

/// Blocks of 16 units of the scorer and of the action head for each 4 rows: as many whole groups as
/// run at once on a big GPU, at least one.
std::vector<Tile> decision_hidden_tiles(const jit::KernelSpec& base) {
  constexpr int64_t kBlocksAtOnce = 264;  // two on each of an H200's 132 multiprocessors
  LaunchRule rule;
  rule.rows_per_block = 4;
  rule.blocks_per_group = int_param(base, "D") / 16 + ceil_div(int_param(base, "UNITS"), 16);
  rule.threads = 256;
  rule.max_blocks =
      std::max<int64_t>(1, kBlocksAtOnce / rule.blocks_per_group) * rule.blocks_per_group;
  return {{kAnyRows, {}, rule}};
}

/// Kernels without tile parameters.
std::vector<Tile> plain(int64_t rows_per_block, uint32_t threads) {
  LaunchRule rule;
  rule.rows_per_block = rows_per_block;
  rule.threads = threads;
  return {{kAnyRows, {}, rule}};
}

}  // namespace

std::vector<Tile> cuda_tiles(const jit::KernelSpec& base, Use use) {
  if (std::vector<Tile> tiles = sm90_tiles(base, use); !tiles.empty()) return tiles;
  const std::string& name = base.template_name();
  if (name == "gemm_rope") return {};
  if (name.starts_with("gemm")) return gemm_tiles(base);
  if (name == "attention") return attention_tiles(base);
  if (name == "rope") return rope_tiles(base);
  if (name == "gather_rows") return plain(1, 128);
  if (name == "row_scales") return plain(64, 256);
  if (name == "decision_hidden") return decision_hidden_tiles(base);
  if (name == "decision") return plain(1, 256);
  return norm_tiles(base);  // embed_norm, final_norm
}

}  // namespace laya::model
