// A file system for SQLite that fails on purpose: a shim over the default one that counts the
// operations of a kind and lets the Nth fail, once or from there on.
#pragma once

#include <cstdint>

namespace laya::cache::test {

enum class FaultKind {
  kIoError,      ///< any operation ends with its I/O error
  kFull,         ///< a write finds no space
  kTornWrite,    ///< a write fails after its first half
  kShortRead,    ///< a read ends in the middle; the rest reads as zeros, as SQLite asks for
  kFlippedRead,  ///< a read succeeds with one bit flipped
  kLockBusy,     ///< a lock, of the file or of its shared memory, is held by somebody else
  kLockError,    ///< a lock cannot be had at all, as where a network file system has no lock server
  kProtocol,     ///< a lock ends with "locking protocol"
};
const char* to_string(FaultKind kind);

enum class Duration { kOnce, kForGood };

/// The default file system of SQLite for the life of the object. Open connections must be closed
/// before it ends. Faults hit all threads; one object at a time. Where SQLite would sleep, it
/// does not.
class FaultVfs {
 public:
  FaultVfs();
  FaultVfs(const FaultVfs&) = delete;
  FaultVfs& operator=(const FaultVfs&) = delete;
  ~FaultVfs();

  /// From now on the `nth` operation that can fail in this way does (1: the next one), and, if
  /// `duration` says so, all that follow.
  void arm(FaultKind kind, int64_t nth, Duration duration);
  void disarm();
  /// Faults since arm().
  int64_t injected() const;
};

}  // namespace laya::cache::test
