#include "model/tiles_sm90.h"

#include <algorithm>
#include <array>
#include <limits>

#include "model/measured_tiles.h"

namespace laya::model {
namespace {

constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();
constexpr int64_t kProcessors = 132;
constexpr int64_t kSplitProcessors =
    112;  // of a cluster of 4 all blocks are in one part of the chip
constexpr int64_t kSharedBytes = 227 * 1024;  // that a block can have
constexpr int64_t kMostStages = 24;
constexpr int64_t kLongK = 2048;  // from here on products sum k in kChunks chunks
constexpr int64_t kChunks = 4;
constexpr int64_t kGroup = 32;  // columns that tiles have a multiple of: see ThreadElements
constexpr std::string_view kSuffix = "_sm90";

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// A product and one way to cut it into tiles.
struct Product {
  int64_t n, k, parts;   // columns of out; columns of a and w; 2 for u and g, else 1
  bool can_split;        // k among blocks
  bool is_residual;      // adds to the residual stream
  int64_t most_columns;  // of a tile; for more a thread has no registers

  int64_t out_columns(const ProductTile& t) const { return t.columns / parts; }
  bool is_chunked() const { return k >= kLongK; }
  int64_t column_tiles(const ProductTile& t) const { return ceil_div(n, out_columns(t)); }
  int64_t slabs() const { return ceil_div(k, 64); }
};

Product product_of(const jit::KernelSpec& base) {
  const int64_t k = int_param(base, "K");
  if (base.template_name() == "gemm_rope") {
    return {3 * int_param(base, "HEADS") * int_param(base, "HEAD_DIM"), k, 1, false, false, 224};
  }
  const int64_t n = int_param(base, "N");
  if (base.template_name() == "gemm_geglu") return {n, k, 2, false, false, 256};
  const bool is_residual = base.template_name() == "gemm_residual";
  return {n, k, 1, k >= kLongK, is_residual, is_residual ? 256 : 224};
}

int64_t stage_bytes(const ProductTile& t) {
  return (t.rows + t.columns) * 128 + 16;
}

/// What blocks that split k send each other.
int64_t exchange_bytes(const ProductTile& t) {
  return t.split == 1 ? 0 : kChunks / t.split * t.rows * t.columns * 4 + 16;
}

bool takes_turns(const ProductTile& t) {
  return t.consumers > 1 && !t.shared;
}

/// Slabs of k that a block multiplies for a tile.
int64_t block_slabs(const Product& p, const ProductTile& t) {
  return t.split == 1 ? p.slabs() : ceil_div(p.slabs(), kChunks) * (kChunks / t.split);
}

/// The residual stream of a tile where it has a place of its own, and its barriers.
int64_t x_ring_bytes(const ProductTile& t) {
  return t.x_ring ? t.rows * t.columns * 4 + 1024 : 0;
}

/// Slots that the residual stream of a tile takes where it comes through the ring of slabs: of each
/// of its two parts boxes of 64 columns.
int64_t extra_slots(const Product& p, const ProductTile& t) {
  if (!p.is_residual || t.split > 1 || t.x_ring) return 0;
  return ceil_div(2 * ceil_div(t.columns, 64), (t.rows + t.columns) / t.rows);
}

/// As many as there is room for; more than the work of all consumers' tiles are of no use. At least
/// two, and what a consumer waits for at once.
int64_t stages(const Product& p, const ProductTile& t) {
  const int64_t room = (kSharedBytes - exchange_bytes(t) - x_ring_bytes(t)) / stage_bytes(t);
  const int64_t useful = block_slabs(p, t) * (takes_turns(t) ? t.consumers : 1);
  const int64_t least = std::max<int64_t>(2, extra_slots(p, t));
  return std::clamp<int64_t>(useful, least, std::min(room, kMostStages));
}

/// Whether the ring of slots holds a whole tile, see product_sm90.cuh.
bool fits_ring(const Product& p, const ProductTile& t) {
  return !takes_turns(t) && t.cluster == 1 && stages(p, t) == block_slabs(p, t);
}

/// Cycles that a thread takes to finish one of its values.
double store_cycles(const Product& p) {
  if (p.is_residual) return 33.8;
  return p.parts == 2 ? 29.4 : 18.5;
}

/// Estimated time of the product in cycles, good enough to choose tiles of products that were not
/// measured, and candidates to measure: the constants are fitted to 2,272 tiles measured on an
/// H200, before there was x_ring. Of the products of base and large those chosen by
/// estimated_tiles() took 4.3 % longer than the fastest. A slab takes the slowest of tensor cores,
/// the way from the L2 cache, whose rate is shared by the blocks at work, and what starting its
/// products costs; storing a tile is hidden behind the next one if consumers take turns. The way of
/// the residual stream is hidden in part, or where it has a ring and blocks have many tiles, and
/// limited by memory.
double estimated_cycles(const Product& p, const ProductTile& t, int64_t rows) {
  constexpr double kStart = 2930, kExchange = 3740, kIssue = 215;  // cycles
  constexpr double kBlockRate = 109.3, kChipRate = 6800;     // bytes per cycle from the L2 cache
  constexpr double kMemoryRate = 4630;                       // bytes per cycle of x in and out
  const double alignment = t.columns % 64 == 0 ? 1 : 1.088;  // of tiles in the matrices
  const auto bm = static_cast<double>(t.rows), columns = static_cast<double>(t.columns);
  const int64_t blocks =
      ceil_div(rows, t.rows * t.cluster) * t.cluster * p.column_tiles(t) * t.split;
  const int64_t processors = t.split == kChunks ? kSplitProcessors : kProcessors;
  const auto rounds = static_cast<double>(ceil_div(blocks, processors));
  const auto active = static_cast<double>(std::min(blocks, processors));

  const double efficiency = 1.496 * alignment * (t.rows == 64 ? 0.817 : 1);
  const double multiply = bm / 64 * 4 * std::max(columns / 2, 28 + 0.223 * columns) * efficiency;
  const double l2 = (bm + columns / static_cast<double>(t.cluster)) * 128 /
                    std::min(kBlockRate, kChipRate / active);
  const double product = static_cast<double>(block_slabs(p, t)) * std::max({multiply, l2, kIssue}) +
                         (t.split > 1 ? kExchange : 0);
  const double store = bm * static_cast<double>(p.out_columns(t)) / 128 * store_cycles(p) /
                       static_cast<double>((t.shared ? t.consumers : 1) * t.split);
  if (t.split > 1) return rounds * (kStart + product + store);  // blocks do not stay
  const double memory = p.is_residual && rounds > 1 ? bm * columns * 8 * active / kMemoryRate : 0;
  const bool hides_store = !p.is_residual || (t.x_ring && rounds >= 3);
  const double shown = !takes_turns(t) ? 1 : hides_store ? 0 : 0.46;
  return kStart + rounds * std::max(product + shown * store, memory) + (takes_turns(t) ? store : 0);
}

/// Sums that a thread holds.
int64_t thread_sums(const ProductTile& t) {
  return t.rows * t.columns / 128 / (t.shared ? t.consumers : 1);
}

/// Sums that a thread has registers for, less where it sums chunks, and where the residual stream
/// does not come through the ring but waits in registers, too.
int64_t most_sums(const Product& p, const ProductTile& t) {
  const bool is_chunked = p.is_chunked() && t.split == 1;
  if (!p.is_residual) return is_chunked ? 64 : 128;
  if (t.split > 1 || fits_ring(p, t)) return 64;
  return is_chunked ? 96 : 128;
}

std::vector<ProductTile> candidates(const Product& p) {
  std::vector<ProductTile> result;
  const auto add = [&](const ProductTile& t) {
    if (thread_sums(t) <= most_sums(p, t)) result.push_back(t);
  };
  for (int64_t columns = kGroup; columns <= p.most_columns; columns += kGroup) {
    if (p.is_residual && columns > 96 && columns % 64 != 0) continue;  // passes of equal groups
    add({64, columns, 1, columns <= 64 ? 1 : 2, false});
    const bool can_have_x_ring = p.is_residual && columns >= 128 && columns % 64 == 0;
    if (can_have_x_ring) add({64, columns, 1, 2, false, 1, true});
    for (const int64_t split : {kChunks / 2, kChunks}) {
      if (!p.can_split || columns % (kGroup * split) != 0 || columns > 128) continue;
      add({64, columns, 1, 1, true, split});
      add({128, columns, 1, 2, true, split});
    }
    if (columns < 64) continue;
    for (const int64_t cluster : {1, 2}) {
      if (p.parts == 1 && columns / cluster % kGroup != 0) continue;  // of a box
      if (p.is_residual && cluster > 1 && columns < 128) continue;    // a box of each slot
      add({128, columns, cluster, 2, true});
      add({128, columns, cluster, 2, false});
      if (can_have_x_ring) add({128, columns, cluster, 2, false, 1, true});
    }
  }
  return result;
}

/// Of a kernel, see Variant::code. Sets of sums for chunks and the way of x make for more of it.
int64_t code_of(const Product& p, const ProductTile& t) {
  const int64_t sets = p.is_chunked() && t.split == 1 ? 2 : 1;
  return thread_sums(t) * sets * (p.is_residual ? 3 : 2) / 2;
}
constexpr int64_t kAttentionCode = 110;

jit::Param param(const char* name, int64_t value) {
  return {name, jit::ParamValue{value}};
}

jit::Param yes_no(const char* name, bool value) {
  return {name, jit::ParamValue{std::string(value ? "yes" : "no")}};
}

/// Row counts that tiles are chosen for. The last choice serves all more and counts for four.
constexpr int64_t kRows[] = {64, 128, 256, 512, 1024, 2048, 4096, 32768};
constexpr size_t kRowCounts = std::size(kRows);

/// How much longer than the best tile each one takes, summed over row counts `first` to `last`.
class TileLoss {
 public:
  TileLoss(const Product& p, const std::vector<ProductTile>& tiles) : sums_(tiles.size()) {
    for (size_t r = 0; r < kRowCounts; ++r) {
      std::vector<double> cycles;
      for (const ProductTile& t : tiles) cycles.push_back(estimated_cycles(p, t, kRows[r]));
      const double best = *std::min_element(cycles.begin(), cycles.end());
      for (size_t i = 0; i < tiles.size(); ++i) {
        const double loss = cycles[i] / best - 1;
        sums_[i][r + 1] = sums_[i][r] + (r + 1 == kRowCounts ? 4 * loss : loss);
      }
    }
  }
  double of(size_t tile, size_t first, size_t last) const {
    return sums_[tile][last + 1] - sums_[tile][first];
  }

 private:
  std::vector<std::array<double, kRowCounts + 1>> sums_;
};

/// The tiles with the least estimated loss for all row counts together, where each further kernel,
/// which has to be compiled and loaded, counts as a loss, too: the code and so the time grow with
/// the sums.
std::vector<Tile> estimated_tiles(const jit::KernelSpec& base, Use use) {
  const Product p = product_of(base);
  const auto kernel_loss = [&](const ProductTile& t) {
    const double code = 0.5 + static_cast<double>(thread_sums(t)) / 136;
    return (use == Use::kSeldom ? 0.6 : 0.3) * code;
  };
  const std::vector<ProductTile> tiles = candidates(p);
  const TileLoss loss(p, tiles);
  struct Choice {
    double loss;
    size_t first, tile;  // the last group of row counts and its tile
  };
  std::vector<Choice> best{{0, 0, 0}};  // for the first n row counts
  for (size_t last = 0; last < kRowCounts; ++last) {
    Choice choice{std::numeric_limits<double>::infinity(), 0, 0};
    for (size_t first = 0; first <= last; ++first) {
      for (size_t i = 0; i < tiles.size(); ++i) {
        const double sum = best[first].loss + loss.of(i, first, last) + kernel_loss(tiles[i]);
        if (sum < choice.loss) choice = {sum, first, i};
      }
    }
    best.push_back(choice);
  }
  std::vector<Tile> result;
  for (size_t n = kRowCounts; n > 0; n = best[n].first) {
    const int64_t max_rows = n == kRowCounts ? kAnyRows : kRows[n - 1];
    result.push_back(product_tile(base, tiles[best[n].tile], max_rows));
  }
  std::reverse(result.begin(), result.end());
  return result;
}

std::vector<Tile> product_tiles(const jit::KernelSpec& base, Use use) {
  const Product p = product_of(base);
  std::vector<Tile> tiles;
  for (const MeasuredTile& row : measured_tiles(base.template_name(), p.n, p.k)) {
    tiles.push_back(product_tile(base, row.tile, row.max_rows));
  }
  return tiles.empty() ? estimated_tiles(base, use) : tiles;
}

/// Blocks of attention_sm90 that fit on a multiprocessor: two with few queries and few keys, whose
/// threads need 128 registers.
int64_t attention_blocks(int64_t queries, int64_t keys) {
  return queries == 64 && keys == 64 ? 2 : 1;
}

/// Small blocks of keys for a window, so that few keys outside of it are looked at; few queries as
/// long as all tiles run at once.
std::vector<Tile> attention_tiles(const jit::KernelSpec& base) {
  const int64_t keys = int_param(base, "WINDOW") == 0 ? 128 : 64;
  const int64_t blocks = kProcessors * attention_blocks(64, keys);
  const int64_t few_rows = 64 * (blocks / int_param(base, "HEADS"));
  std::vector<Tile> tiles;
  if (few_rows > 0) tiles.push_back(attention_tile(base, 64, keys, few_rows));
  tiles.push_back(attention_tile(base, 128, keys, kAnyRows));
  return tiles;
}

/// Whether there is a Hopper version of the kernel.
bool has_sm90(const jit::KernelSpec& base) {
  const std::string& name = base.template_name();
  if (base.target().name != "sm_90a") return false;
  const bool has_heads = name == "gemm_rope" || name == "attention";
  if (!has_heads && name != "gemm" && name != "gemm_geglu" && name != "gemm_residual") return false;
  if (word_param(base, "T") == "fp32") return false;
  if (name == "gemm" && int_param(base, "N") % kGroup != 0) return false;
  if (name == "gemm_geglu" && int_param(base, "N") % (kGroup / 2) != 0) return false;
  return !has_heads || int_param(base, "HEAD_DIM") == 64;
}

}  // namespace

Tile product_tile(const jit::KernelSpec& base, const ProductTile& t, int64_t max_rows) {
  const Product p = product_of(base);
  const int64_t stage_count = stages(p, t);
  LaunchRule rule;
  rule.rows_per_block = t.rows * t.cluster;
  rule.blocks_per_group = p.column_tiles(t) * t.cluster * t.split;
  rule.threads = static_cast<uint32_t>(128 * (t.consumers + 1));
  rule.dynamic_shared_bytes =
      static_cast<uint32_t>(stage_count * stage_bytes(t) + exchange_bytes(t) + x_ring_bytes(t));
  if (t.split == 1) rule.max_blocks = kProcessors;
  const int64_t box = p.parts == 2 ? t.columns / 2 : t.columns / t.cluster;
  std::vector<jit::Param> params = {param("BM", t.rows),         param("BN", box),
                                    param("CLUSTER", t.cluster), param("CONSUMERS", t.consumers),
                                    yes_no("SHARED", t.shared),  param("STAGES", stage_count),
                                    param("SPIN_LIMIT", 0)};
  if (base.template_name() == "gemm" || p.is_residual) params.push_back(param("SPLIT", t.split));
  if (p.is_residual) params.push_back(yes_no("X_RING", t.x_ring));
  return {max_rows, std::move(params), rule, base.template_name() + std::string(kSuffix),
          code_of(p, t)};
}

std::vector<ProductTile> ranked_product_tiles(const jit::KernelSpec& base, int64_t rows) {
  const Product p = product_of(base);
  std::vector<ProductTile> tiles = candidates(p);
  std::stable_sort(tiles.begin(), tiles.end(), [&](const ProductTile& x, const ProductTile& y) {
    return estimated_cycles(p, x, rows) < estimated_cycles(p, y, rows);
  });
  return tiles;
}

Variant product_variant(const jit::KernelSpec& base, const ProductTile& t, int64_t max_rows) {
  return with_tile(base, product_tile(base, t, max_rows));
}

std::optional<jit::KernelSpec> product_base(const jit::KernelSpec& variant) {
  constexpr std::string_view kTileParams[] = {
      "BM", "BN", "CLUSTER", "CONSUMERS", "SHARED", "STAGES", "SPIN_LIMIT", "SPLIT", "X_RING"};
  std::string name = variant.template_name();
  if (!name.starts_with("gemm") || !name.ends_with(kSuffix)) return std::nullopt;
  name.resize(name.size() - kSuffix.size());
  jit::KernelSpec base(name, variant.target());
  for (const jit::Param& param : variant.params()) {
    const bool is_tile = std::find(std::begin(kTileParams), std::end(kTileParams), param.name) !=
                         std::end(kTileParams);
    if (is_tile) continue;
    std::visit([&](const auto& value) { base.set(param.name, value); }, param.value);
  }
  return base;
}

Tile attention_tile(const jit::KernelSpec& base, int64_t queries, int64_t keys, int64_t max_rows) {
  const int64_t slot_bytes = keys * 256 + 32, fixed_bytes = queries * 272 + 32;
  const int64_t stage_count = std::min<int64_t>(4, (kSharedBytes - fixed_bytes) / slot_bytes);
  LaunchRule rule;
  rule.rows_per_block = queries;
  rule.blocks_per_group = int_param(base, "HEADS");
  rule.threads = static_cast<uint32_t>(2 * queries + 128);
  rule.dynamic_shared_bytes = static_cast<uint32_t>(fixed_bytes + stage_count * slot_bytes);
  rule.max_blocks = kProcessors * attention_blocks(queries, keys);
  return {max_rows,
          {param("BQ", queries), param("KEYS", keys), param("STAGES", stage_count),
           param("SPIN_LIMIT", 0)},
          rule,
          base.template_name() + "_sm90",
          kAttentionCode};
}

std::vector<Tile> sm90_tiles(const jit::KernelSpec& base, Use use) {
  if (!has_sm90(base)) return {};
  return base.template_name() == "attention" ? attention_tiles(base) : product_tiles(base, use);
}

}  // namespace laya::model
