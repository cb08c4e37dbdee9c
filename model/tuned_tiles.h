// Tiles that `laya bench kernels --tune` found fastest on a GPU. They are kept in the store beside
// the kernels, under keys of their own, so that whatever carries the kernels carries them.
//
// Every tile of an operation computes the same bits (see Op), so that a choice changes times only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/layers.h"
#include "cache/store.h"
#include "model/plan.h"
#include "model/tiles_sm90.h"

namespace laya::model {

/// The tile for up to `max_rows` rows.
struct TunedTile {
  int64_t max_rows;  ///< INT64_MAX in the last one
  ProductTile tile;
};

/// Where the choice comes from, for people.
struct TuningProvenance {
  std::string device;  ///< such as "NVIDIA H200"
  std::string detail;  ///< what was measured
};

/// Stores or replaces the choice for a product (`base` as of product_tile()); ascending in
/// max_rows, not empty. False: the store keeps nothing.
bool store_tuned_tiles(cache::Store& store, const jit::KernelSpec& base,
                       const std::vector<TunedTile>& tiles, const TuningProvenance& provenance);

/// What is stored for a product, or else what the first of `layers` has (null: no layers). Empty
/// where nothing is, and where what is there names a tile that this version would not consider.
std::vector<TunedTile> find_tuned_tiles(cache::Store& store, const jit::KernelSpec& base,
                                        cache::Layers* layers = nullptr);

/// Where the choices for a plan's products are stored, whether or not there are any.
std::vector<cache::Key> tuned_tiles_keys(const Plan& plan);

/// Replaces the variants of an operation by those of tuned tiles, if there are any.
void use_tuned_tiles(Op& op, cache::Store& store, cache::Layers* layers = nullptr);
/// The plan with tuned tiles in place of those that make_plan() chose, where there are any.
Plan with_tuned_tiles(Plan plan, cache::Store& store, cache::Layers* layers = nullptr);

}  // namespace laya::model
