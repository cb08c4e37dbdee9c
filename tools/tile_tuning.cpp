#include "tools/tile_tuning.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

namespace laya::tools {
namespace {

constexpr double kWorthAnotherKernel = 1.03;

}  // namespace

void TileTuning::note(int64_t rows, const jit::KernelSpec& variant, double us) {
  measured_.push_back({rows, variant, us});
}

double TileTuning::time_of(int64_t rows, const jit::KernelSpec& base,
                           const model::ProductTile& tile) const {
  const jit::KernelSpec spec = model::product_variant(base, tile, rows).spec;
  for (const Measured& m : measured_) {
    if (m.rows == rows && m.spec == spec) return m.us;
  }
  return std::numeric_limits<double>::infinity();
}

Result<void> TileTuning::store_fastest(const jit::KernelSpec& base, std::vector<int64_t> row_counts,
                                       const model::TuningProvenance& provenance,
                                       cache::Store& store) const {
  std::sort(row_counts.begin(), row_counts.end(), std::greater<>());
  std::vector<model::TunedTile> tiles;
  for (const int64_t rows : row_counts) {
    std::optional<model::ProductTile> best;
    double best_us = std::numeric_limits<double>::infinity();
    for (const model::ProductTile& tile : model::ranked_product_tiles(base, rows)) {
      const double us = time_of(rows, base, tile);
      if (us < best_us) best = tile, best_us = us;
    }
    if (!best) continue;
    if (tiles.empty()) {
      tiles.push_back({std::numeric_limits<int64_t>::max(), *best});
    } else if (time_of(rows, base, tiles.back().tile) > best_us * kWorthAnotherKernel) {
      tiles.push_back({rows, *best});
    }
  }
  std::reverse(tiles.begin(), tiles.end());
  if (model::store_tuned_tiles(store, base, tiles, provenance)) return {};
  return fail(ErrorKind::kStoreError, "the choice of tiles for " + base.to_string() +
                                          " could not be stored: " + store.reason());
}

}  // namespace laya::tools
