// An operation of the model: the kernels that can do it and how each is launched, as plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/kernel.h"
#include "jit/kernel_spec.h"

namespace laya::model {

/// How often an operation runs in a forward pass: in every layer, or in few. A kernel of its own
/// for some row counts has to be worth its compile time.
enum class Use : uint8_t { kOften, kSeldom };

/// The launch rule of a kernel whose grid depends on nothing but the number of rows.
struct LaunchRule {
  int64_t rows_per_block = 1;    ///< rows that one block (one group of blocks) works on
  int64_t blocks_per_group = 1;  ///< blocks that share those rows: column tiles, heads or units
  uint32_t threads = 1;          ///< per block; 1 on the CPU
  uint32_t dynamic_shared_bytes = 0;
  int64_t max_blocks = INT64_MAX;  ///< of a kernel whose blocks take several shares of the work

  /// grid.x = ceil(rows / rows_per_block) * blocks_per_group, at most max_blocks; empty for 0 rows.
  jit::LaunchShape shape(int64_t rows) const;
};

/// One kernel able to do an operation.
struct Variant {
  int64_t max_rows;  ///< use it up to this many rows; INT64_MAX in the last variant
  jit::KernelSpec spec;
  LaunchRule rule;
  int64_t code = 1;  ///< roughly how long it takes to compile beside others: for sorting
};

/// Variants in ascending order of max_rows; empty where a plan does without the operation. All
/// variants of an operation compute every output in the same order of additions, so that a row's
/// result does not depend on the choice.
struct Op {
  std::vector<Variant> variants;

  const Variant& choose(int64_t rows) const;
};

}  // namespace laya::model
