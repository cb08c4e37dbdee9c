// Machine code as text, by whatever disassembler this machine has.
#pragma once

#include <string>
#include <string_view>

#include "cache/result.h"

namespace laya::tools {

/// `object` is a kernel's artifact, an ELF file: a cubin goes to nvdisasm (of PATH or
/// /usr/local/cuda/bin), an object for a CPU to llvm-objdump or objdump.
/// kUnavailable names what is not installed, kBadInput: the bytes are no ELF file.
Result<std::string> disassemble(std::string_view object);

}  // namespace laya::tools
