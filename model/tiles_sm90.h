// The choice of tiles for the templates that only Hopper has (*_sm90).
#pragma once

#include <vector>

#include "model/tiles.h"

namespace laya::model {

/// The tile of gemm_sm90 and gemm_geglu_sm90. `columns` counts rows of w: of a geglu tile, u and g.
struct ProductTile {
  int64_t rows, columns, cluster, consumers;
};

/// `base` names gemm or gemm_geglu; the template of the tile is its sm90 version.
Tile product_tile(const jit::KernelSpec& base, const ProductTile& tile, int64_t max_rows);

/// As cuda_tiles(). Precondition: the target is sm_90a, the dtype has 16 bits, and `base` names
/// gemm or gemm_geglu.
std::vector<Tile> sm90_product_tiles(const jit::KernelSpec& base);

}  // namespace laya::model
