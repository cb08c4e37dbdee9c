// Reads a cubin (the ELF file that ptxas makes) without a driver: is it whole, for which
// architecture, does it hold the kernel, and what does the kernel need. Every offset is checked
// against the bytes at hand, since cuLibraryLoadData takes no size and would trust them.
#pragma once

#include <string_view>

#include "cache/result.h"
#include "jit/compiler.h"

namespace laya::jit::cuda {

struct Cubin {
  int capability = 0;  ///< compute capability x 10, such as 90
  KernelAttributes attributes;
};

/// Describes kernel `entry` of `bytes`. kBadInput: no cubin, cut off, damaged, or without `entry`.
Result<Cubin> read_cubin(std::string_view bytes, std::string_view entry);

}  // namespace laya::jit::cuda
