// The optimisations of a kernel, from Clang's plain output to what the code generator takes. Used
// by clang_driver.cpp only.
#pragma once

#include <string>

namespace llvm {
class Module;
}

namespace laya::llvm_component {

/// Thread-safe for different contexts. False: `error` says why; the module is then of no use.
bool optimize(llvm::Module& module, std::string& error);

}  // namespace laya::llvm_component
