// LayerNorm folded into the linear layer behind it, for products that normalize their input
// themselves (templates/cuda/moments.cuh). With norm weight g and bias c,
//
//   LN(x) * w^T + b  =  x * v^T / deviation(x) + (w * c + b)
//
// where row n of v is row n of w times g, element by element, less its own mean: the mean of x
// then meets a sum of zero, so that it need not be subtracted.
#pragma once

#include <span>

namespace laya::model {

/// Makes a row of w to that of v. `norm_weight` has as many elements.
void fold_norm_weight(std::span<float> row, std::span<const float> norm_weight);

/// What c adds to the bias of this row, in double precision. `norm_bias` has as many elements.
float folded_norm_bias(std::span<const float> row, std::span<const float> norm_bias);

}  // namespace laya::model
