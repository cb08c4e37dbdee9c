// The tiles of the model presets' products on Hopper, chosen by measurement.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/tiles_sm90.h"

namespace laya::model {

/// A row of the table: a product with up to max_rows rows, and more than the row before.
struct MeasuredTile {
  std::string_view kernel;  ///< the base's template: gemm, gemm_rope, gemm_geglu or gemm_residual
  int64_t n, k;             ///< columns of the result (of gemm_rope: 3 * HEADS * HEAD_DIM) and of a
  int64_t max_rows;         ///< INT64_MAX in the last row of each product
  ProductTile tile;
};

/// The rows of one product, ascending; empty for a product that was not measured.
std::span<const MeasuredTile> measured_tiles(std::string_view kernel, int64_t n, int64_t k);

}  // namespace laya::model
