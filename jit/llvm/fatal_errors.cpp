#include "jit/llvm/fatal_errors.h"

#include <llvm/Support/ErrorHandling.h>

#include <csetjmp>

namespace laya::llvm_component {
namespace {

struct Recovery {
  std::jmp_buf back;
  std::string* message;
};

thread_local Recovery* current = nullptr;

// LLVM is built without exceptions, so that jumping is the only way out of a handler that must not
// return; llvm::CrashRecoveryContext does the same, but takes over the process's signals as well.
void on_fatal_error(void* /*user_data*/, const char* reason, bool /*crash_diagnostics*/) {
  if (current == nullptr) return;
  current->message->assign(reason);
  std::longjmp(current->back, 1);
}

}  // namespace

void install_fatal_error_recovery() {
  llvm::install_fatal_error_handler(on_fatal_error);
}

bool recover_from_fatal_errors(std::string& message, const std::function<void()>& work) {
  Recovery recovery;
  recovery.message = &message;
  current = &recovery;
  if (setjmp(recovery.back) == 0) {
    work();
    current = nullptr;
    return true;
  }
  current = nullptr;
  return false;
}

}  // namespace laya::llvm_component
