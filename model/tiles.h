// The choice of tile configuration and launch rule: a pure function of the kernel and its target.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jit/kernel_spec.h"
#include "model/op.h"

namespace laya::model {

/// Tile parameters to add to a spec, and the launch rule that goes with them.
struct Tile {
  int64_t max_rows;                ///< see Variant::max_rows
  std::vector<jit::Param> params;  ///< such as BM, BN; none where a template has no tile parameters
  LaunchRule rule;
  std::string template_name = {};  ///< of another template that does the same; empty: the base's
  int64_t code = 1;                ///< see Variant::code
};

/// The kernel `base` with that tile, by the template that the tile names.
Variant with_tile(const jit::KernelSpec& base, const Tile& tile);

/// Tile::code of products and attention where no better estimate is known.
inline constexpr int64_t kLargeCode = 20;

/// `base` has every parameter but those of the tile. Ascending in max_rows; the last max_rows is
/// INT64_MAX. Empty only for gemm_rope where the target has no such kernel. Precondition: `base`
/// names a template of this project.
std::vector<Tile> cuda_tiles(const jit::KernelSpec& base, Use use = Use::kOften);
std::vector<Tile> cpu_tiles(const jit::KernelSpec& base);

/// Value of a parameter that `base` is known to have.
int64_t int_param(const jit::KernelSpec& base, std::string_view name);
std::string word_param(const jit::KernelSpec& base, std::string_view name);

}  // namespace laya::model
