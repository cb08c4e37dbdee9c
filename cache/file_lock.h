// A lock between processes (and between the Stores of one process) that the system releases when
// its owner dies. Internal to cache/.
#pragma once

#include <chrono>
#include <filesystem>

#include "cache/fault.h"

namespace laya::cache {

/// An exclusive flock() on a file that is made for it and never removed: removing it would let two
/// owners hold "the" lock on two files.
class FileLock {
 public:
  /// Waits up to `timeout`; kBusy if others hold it for so long, kOther if it cannot be had at all.
  static Attempt<FileLock> acquire(const std::filesystem::path& file,
                                   std::chrono::milliseconds timeout);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace laya::cache
