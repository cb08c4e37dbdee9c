// Moving host arrays to a device: converted, with norms folded in and heads interleaved or, on the
// CPU, packed, several at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cache/result.h"
#include "jit/device.h"
#include "jit/engine.h"
#include "model/dtype.h"
#include "model/plan.h"

namespace laya::model {

/// One array to move. The source bytes must stay valid during upload_all().
struct Upload {
  std::string name;  ///< for messages
  std::span<const std::byte> source;
  DType from = DType::kF32;
  DType to = DType::kF32;
  const MatrixOp* matrix = nullptr;  ///< of the plan, if a gemm reads the array; else null
  size_t offset = 0;                 ///< in bytes, in the device storage
  /// The weight of the norm to fold into each row of a matrix (fold_norm.h); empty: none is.
  std::span<const float> norm_weight = {};

  size_t elements() const { return source.size() / static_cast<size_t>(size_of(from)); }
  /// Bytes at the device, packed if it is to be packed.
  size_t stored_bytes() const;
};

/// Returns when all arrays are in `storage`. Conversion of one array overlaps with the copy of
/// another: each of a few threads has a staging buffer and a stream of its own.
Result<void> upload_all(std::span<const Upload> uploads, const jit::Buffer& storage,
                        jit::Device& device, jit::Engine& engine);

}  // namespace laya::model
