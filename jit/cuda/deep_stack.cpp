#include "jit/cuda/deep_stack.h"

#include <pthread.h>

namespace laya::jit::cuda {
namespace {

void* call(void* work) {
  (*static_cast<const std::function<void()>*>(work))();
  return nullptr;
}

/// True if a thread ran `work` to its end.
bool run_on_thread(size_t stack_bytes, const std::function<void()>& work) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_t thread;
  auto* argument = const_cast<std::function<void()>*>(&work);
  const bool is_started = pthread_attr_setstacksize(&attributes, stack_bytes) == 0 &&
                          pthread_create(&thread, &attributes, call, argument) == 0;
  pthread_attr_destroy(&attributes);
  if (is_started) pthread_join(thread, nullptr);
  return is_started;
}

}  // namespace

void run_with_stack(size_t stack_bytes, const std::function<void()>& work) {
  if (!run_on_thread(stack_bytes, work)) work();
}

}  // namespace laya::jit::cuda
