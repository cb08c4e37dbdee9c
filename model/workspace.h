// Where the intermediate results of one forward pass lie in one block of device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/batch.h"
#include "model/config.h"
#include "model/dtype.h"

namespace laya::model {

/// Byte offsets in a block of `bytes`; a pure function of sizes. Linear in the number of tokens.
/// Buffers are used again as soon as their content is dead; forward.cpp says by what.
struct WorkspaceLayout {
  WorkspaceLayout(const Config& config, DType compute, const ShapeClass& shape);

  size_t input;       ///< i32: the arrays of BatchLayout
  size_t output;      ///< f32: logits [markers], then action logits [rows, actions]
  size_t x;           ///< f32 [tokens, D] residual stream; later f32 [gathered, D] scorer input
  size_t a;           ///< T [tokens, D] output of attention
  size_t h;           ///< T [tokens or gathered, D] what products read of x: normalized on the CPU
                      ///< and after the norms that are no layer's, else rounded
  size_t moments;     ///< f32 [tokens or gathered, D / 32, 2] of rows of x; not touched where
                      ///< norms are not folded
  size_t scales;      ///< f32 [tokens or gathered] of rows of x; likewise
  size_t wide;        ///< T [tokens or gathered, widest] qkv, inside of the MLPs
  size_t gathered_x;  ///< f32 [gathered, D] residual stream of the gathered rows
  size_t gathered_a;  ///< T [gathered, D]
  size_t bytes;

  size_t input_bytes;
  size_t output_bytes;
};

}  // namespace laya::model
