// The choice of tiles for the templates that only Hopper has (*_sm90).
#pragma once

#include <optional>
#include <vector>

#include "model/tiles.h"

namespace laya::model {

/// The tile of gemm_sm90, gemm_rope_sm90, gemm_geglu_sm90 and gemm_residual_sm90. `columns` counts
/// rows of w: of a geglu tile, u and g.
struct ProductTile {
  int64_t rows, columns, cluster, consumers;
  bool shared;        ///< the consumers share each tile; else they take tiles in turn
  int64_t split = 1;  ///< blocks that split k: 1; 2 or 4 for gemm and gemm_residual with K >= 2048
  bool x_ring = false;  ///< x has a place of its own: gemm_residual whose consumers take turns
  bool operator==(const ProductTile&) const = default;
};

/// `base` names gemm, gemm_rope, gemm_geglu or gemm_residual; the template of the tile is its sm90
/// version.
Tile product_tile(const jit::KernelSpec& base, const ProductTile& tile, int64_t max_rows);

/// All tiles that product_tile() accepts, the one that should be fastest for `rows` rows first.
std::vector<ProductTile> ranked_product_tiles(const jit::KernelSpec& base, int64_t rows);

/// The kernel with that tile.
Variant product_variant(const jit::KernelSpec& base, const ProductTile& tile, int64_t max_rows);

/// The base of a kernel that product_variant() made; nothing of any other kernel.
std::optional<jit::KernelSpec> product_base(const jit::KernelSpec& variant);

/// The tile of attention_sm90 with `queries` queries and blocks of `keys` keys. For one operation
/// all tiles must have the same `keys`: the results depend on it.
Tile attention_tile(const jit::KernelSpec& base, int64_t queries, int64_t keys, int64_t max_rows);

/// As cuda_tiles(). Empty where there is no Hopper version: other targets, fp32, other templates.
std::vector<Tile> sm90_tiles(const jit::KernelSpec& base, Use use = Use::kOften);

}  // namespace laya::model
