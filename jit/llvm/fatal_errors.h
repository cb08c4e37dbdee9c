// LLVM ends the process when it meets something it cannot report as a diagnostic, such as a
// constraint of the back end. Here it becomes an error of the one compilation that caused it.
#pragma once

#include <functional>
#include <string>

namespace laya::llvm_component {

/// Once per process. Threads that are not inside recover_from_fatal_errors() keep LLVM's behaviour.
void install_fatal_error_recovery();

/// Runs `work`. False if LLVM gave up in it; `message` then holds LLVM's reason, and whatever
/// `work` had allocated is lost: its destructors do not run.
bool recover_from_fatal_errors(std::string& message, const std::function<void()>& work);

}  // namespace laya::llvm_component
