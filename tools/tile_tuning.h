// The choice of tiles for matrix products from what was measured on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/result.h"
#include "cache/store.h"
#include "jit/kernel_spec.h"
#include "model/tuned_tiles.h"

namespace laya::tools {

class TileTuning {
 public:
  /// A kernel that product_variant() made took `us` microseconds over `rows` rows.
  void note(int64_t rows, const jit::KernelSpec& variant, double us);

  /// Keeps the fastest noted tiles of a product in the store, where models find them. From many
  /// rows to few, a tile stays as long as no other is faster by more than what another kernel to
  /// compile and load should bring. kStoreError: they could not be kept.
  Result<void> store_fastest(const jit::KernelSpec& base, std::vector<int64_t> row_counts,
                             const model::TuningProvenance& provenance, cache::Store& store) const;

 private:
  struct Measured {
    int64_t rows;
    jit::KernelSpec spec;
    double us;
  };

  /// Infinity where it was not measured.
  double time_of(int64_t rows, const jit::KernelSpec& base, const model::ProductTile& tile) const;

  std::vector<Measured> measured_;
};

}  // namespace laya::tools
