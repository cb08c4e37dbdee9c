// The matrix products that `laya bench kernels --device cuda` measures: those of models.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "jit/target.h"
#include "model/config.h"
#include "model/ops.h"

namespace laya::tools {

/// What a product ends with; all but the last begin with a norm. The last adds to its results and
/// so comes last of all.
enum class Epilogue : uint8_t { kBias, kBiasRelu, kRope, kGeglu, kResidual };

struct ProductCase {
  Epilogue epilogue;
  int64_t n, k;  ///< columns of out and of a
  model::Use use = model::Use::kSeldom;
  auto operator<=>(const ProductCase&) const = default;

  const char* name() const;  ///< as --kernel knows it
  int64_t w_rows() const { return epilogue == Epilogue::kGeglu ? 2 * n : n; }
  /// No variants where the target has no such kernel.
  model::Op op(const jit::Target& target, model::DType dtype) const;
};

/// The distinct products of encoder and decision head.
std::set<ProductCase> products_of(const std::vector<model::Config>& configs);

/// The tile of a variant with Hopper's templates, as " tile BM,BN,...", for tables; else empty.
std::string tile_text(const model::Variant& variant);

}  // namespace laya::tools
