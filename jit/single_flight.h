// A table that computes each value once: the first caller of a key builds it with no lock held, the
// others wait for that one build. A failure wakes all waiters with the error and is forgotten.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "cache/result.h"

namespace laya::jit {

/// Thread-safe. Value is cheap to copy (a shared_ptr). After a fork the child builds itself what
/// was being built.
template <class Key, class Value, class Hash>
class SingleFlightTable {
 public:
  /// The value if it is there already. Takes a shared lock for a moment, allocates nothing.
  std::optional<Value> find(const Key& key) const {
    std::shared_lock lock(mutex_);
    const auto at = slots_.find(key);
    if (at == slots_.end() || !at->second->ready.load(std::memory_order_acquire)) return {};
    return at->second->value;
  }

  /// The value for `key`, from `build()` if need be. Different keys never wait for each other.
  template <class Build>
  Result<Value> get(const Key& key, const Build& build) {
    const auto [slot, is_builder] = claim(key);
    return is_builder ? run(key, *slot, build) : wait(*slot);
  }

  void erase(const Key& key) {
    std::unique_lock lock(mutex_);
    slots_.erase(key);
  }

 private:
  struct Slot {
    const pid_t process = ::getpid();  ///< of the builder
    std::atomic<bool> ready = false;   ///< `value` is set and never changes again
    Value value;
    std::mutex mutex;
    std::condition_variable done;
    std::optional<Error> error;  ///< guarded by `mutex`
  };

  std::pair<std::shared_ptr<Slot>, bool> claim(const Key& key) {
    std::unique_lock lock(mutex_);
    const auto [at, is_new] = slots_.try_emplace(key);
    if (!is_new && !is_abandoned(*at->second)) return {at->second, false};
    at->second = std::make_shared<Slot>();
    return {at->second, true};
  }

  /// Whether the builder is a thread that a fork has left behind in the parent.
  static bool is_abandoned(const Slot& slot) {
    return !slot.ready.load(std::memory_order_acquire) && slot.process != ::getpid();
  }

  template <class Build>
  Result<Value> run(const Key& key, Slot& slot, const Build& build) {
    Result<Value> result = guarded(build);
    // Forgotten before anyone is woken, so that a waiter who tries again builds again.
    if (!result) forget(key, slot);
    {
      std::lock_guard lock(slot.mutex);
      if (result) {
        slot.value = *result;
        slot.ready.store(true, std::memory_order_release);
      } else {
        slot.error = result.error();
      }
    }
    slot.done.notify_all();
    return result;
  }

  /// An exception (out of memory) must not leave the waiters waiting for ever.
  template <class Build>
  static Result<Value> guarded(const Build& build) {
    try {
      return build();
    } catch (const std::exception& exception) {
      return fail(ErrorKind::kInternal, std::string("an exception: ") + exception.what());
    }
  }

  void forget(const Key& key, const Slot& slot) {
    std::unique_lock lock(mutex_);
    const auto at = slots_.find(key);
    if (at != slots_.end() && at->second.get() == &slot) slots_.erase(at);
  }

  Result<Value> wait(Slot& slot) {
    std::unique_lock lock(slot.mutex);
    slot.done.wait(lock, [&] { return slot.ready.load() || slot.error.has_value(); });
    if (slot.error) return tl::make_unexpected(*slot.error);
    return slot.value;
  }

  mutable std::shared_mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<Slot>, Hash> slots_;
};

}  // namespace laya::jit
