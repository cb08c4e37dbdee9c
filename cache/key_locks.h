// One lock per key between all processes (and all Stores) that use a directory, so that of those
// that miss the same kernel one builds it. Internal to cache/.
//
// The locks are bytes of one file, at an offset taken from the key: open file description locks,
// which the system releases when their owner dies, and which leave no files behind. Two keys that
// share an offset would wait for each other and nothing worse: no lock decides what is right.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "cache/fault.h"
#include "cache/fork_guard.h"
#include "cache/key.h"
#include "cache/store.h"

namespace laya::cache {

/// Thread-safe. A forked child owns none of its parent's locks.
class KeyLocks final : private ForkAware {
 public:
  /// `file` is made when the first lock is asked for, mode 0600, and never removed.
  explicit KeyLocks(std::filesystem::path file);
  ~KeyLocks();
  KeyLocks(const KeyLocks&) = delete;
  KeyLocks& operator=(const KeyLocks&) = delete;

  /// Waits up to `timeout` for the lock of `key` as built by `producer`. kBusy if another holds it
  /// for so long, kOther if the file system has no such locks. The claim must not outlive this.
  Attempt<std::unique_ptr<BuildClaim>> acquire(const Digest& key, std::string_view producer,
                                               std::chrono::milliseconds timeout);

 private:
  class Claim;

  Attempt<int> open();
  void close(int fd);
  void before_fork() override;
  void after_fork(bool in_child) override;

  const std::filesystem::path file_;
  std::mutex mutex_;
  std::vector<int> open_;  ///< guarded by mutex_; a description for each claim, held or waited for
};

}  // namespace laya::cache
