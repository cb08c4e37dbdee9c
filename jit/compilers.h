// The compilers that this build knows. Making one opens nothing.
#pragma once

#include <filesystem>
#include <memory>

#include "cache/log.h"
#include "jit/compiler.h"

namespace laya::jit {

/// NVRTC, for CUDA targets. `library`: its file; empty: searched for.
std::unique_ptr<Compiler> make_nvrtc_compiler(std::filesystem::path library, LogFn log);

/// Clang and LLVM, for CPU targets, through the component library liblaya_llvm.so.
std::unique_ptr<Compiler> make_llvm_compiler(LogFn log);

}  // namespace laya::jit
