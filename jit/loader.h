// From stored machine code to a callable Kernel; one function per backend. Neither needs a
// compiler.
#pragma once

#include <memory>
#include <string>

#include "cache/result.h"
#include "jit/kernel.h"

namespace laya::jit {

struct LoadRequest {
  std::string name;   ///< the spec as text, for messages
  std::string entry;  ///< function to launch
  Target target;
  Signature signature;
  KernelAttributes attributes;
  std::string object;         ///< the bytes that a Compiler made
  bool is_dependent = false;  ///< see Template; CUDA only
};

/// Loads a cubin for use in every context of the process. Needs a driver, but no open device.
/// kUnavailable: no driver. kDeviceError: the driver refuses the bytes; names error, target and
/// driver version.
Result<std::shared_ptr<const Kernel>> load_cuda_kernel(LoadRequest request);

/// Loads an ELF relocatable object into memory of this process: no file, no dlopen, no LLVM.
/// Calls `laya_launch` (see jit/template.h). kDeviceError: the object is damaged, needs a symbol
/// that does not exist, or was compiled for features that this CPU lacks.
Result<std::shared_ptr<const Kernel>> load_cpu_kernel(LoadRequest request);

}  // namespace laya::jit
