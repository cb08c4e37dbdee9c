// Where the intermediate results of one forward pass lie in one block of device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/batch.h"
#include "model/config.h"
#include "model/plan.h"

namespace laya::model {

/// Byte offsets in a block of `bytes`; a pure function of sizes. Linear in the number of tokens.
/// Buffers are used again as soon as their content is dead; forward.cpp says by what.
struct WorkspaceLayout {
  WorkspaceLayout(const Config& config, const Plan& plan, const ShapeClass& shape);

  size_t input;       ///< i32: the arrays of BatchLayout
  size_t x;           ///< X [tokens, D] residual stream, of residual_dtype()
  size_t x_low;       ///< X [tokens, D] its lower part; nothing with fp32
  size_t a;           ///< T [tokens, D] output of attention, and of the norms that are no layer's
  size_t h;           ///< T [tokens or gathered, D] x normalized; nothing where norms are folded
  size_t moments;     ///< f32 [moment_floats()] of rows of x; not touched where norms are not
                      ///< folded
  size_t scales;      ///< f32 [tokens or gathered] of rows of x; likewise
  size_t wide;        ///< T [tokens or gathered, widest] qkv, inside of the MLPs; later f32 arrays
                      ///< of the decision
  size_t gathered_x;  ///< X [gathered, D] residual stream of the gathered rows
  size_t gathered_x_low;  ///< X [gathered, D] its lower part
  size_t gathered_a;      ///< T [gathered, D]
  size_t bytes;

  size_t input_bytes;
  size_t output_bytes;  ///< of what run_forward() leaves in the host's memory
};

}  // namespace laya::model
