// What the processor says about itself, read once and kept as data, so that its meaning can be
// tested with the values of other processors.
#pragma once

#include <cstdint>
#include <string>

namespace laya::jit {

struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// The leaves of x86's CPUID that tell vendor, model and features. Zero where a leaf is missing.
struct CpuidSnapshot {
  std::string vendor;        ///< "AuthenticAMD", "GenuineIntel"
  CpuidLeaf leaf1;           ///< family, model, basic features
  CpuidLeaf leaf7;           ///< sub-leaf 0
  CpuidLeaf leaf7_1;         ///< sub-leaf 1
  CpuidLeaf extended1;       ///< 0x80000001
  uint64_t xcr0 = 0;         ///< register states that the system saves; 0 without XSAVE
  bool may_use_amx = false;  ///< the system has granted this process AMX's tile data
  std::string brand;         ///< "AMD EPYC 9654 96-Core Processor"
};

/// Of the processor that this runs on; all zero where it is not x86-64.
CpuidSnapshot read_cpuid();

}  // namespace laya::jit
