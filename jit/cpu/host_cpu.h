// From CPUID to the LLVM name and features of a processor.
#pragma once

#include "jit/cpu/cpuid.h"
#include "jit/target.h"

namespace laya::jit {

/// The CPU target of a processor: LLVM's name for it, or x86-64, x86-64-v2, -v3, -v4 by its
/// features where it is not known, and those features that change which code is made and that the
/// system lets a process use.
Target cpu_target(const CpuidSnapshot& cpuid);

}  // namespace laya::jit
