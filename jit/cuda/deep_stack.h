// Runs work that may recurse deeply on a stack of known size, whatever thread it is called from.
#pragma once

#include <cstddef>
#include <functional>

namespace laya::jit::cuda {

/// Runs `work`, which must not throw, and returns when it is done. It gets a thread of its own with
/// a stack of `stack_bytes`; where none can be had it runs on the calling thread. Costs about 50
/// us.
void run_with_stack(size_t stack_bytes, const std::function<void()>& work);

}  // namespace laya::jit::cuda
