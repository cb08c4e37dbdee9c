// How the inside of cache/ reports failure: finer than Error, because the store answers each kind
// of fault in its own way, and never shows it to a caller of find() or put(). Internal to cache/.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "cache/result.h"

namespace laya::cache {

/// What went wrong, as far as the store acts on it.
enum class Fault {
  kBusy,          ///< another process holds a lock; waiting may help, deleting never does
  kDamaged,       ///< not a database, or its structure is broken
  kInconsistent,  ///< a sound structure with tables that contradict each other
  kForeign,       ///< a database that belongs or is open to others
  kOtherFormat,   ///< a sound database of another application or version
  kFull,          ///< no space left on the device
  kReadOnly,      ///< not writable (any more), or the file was moved away under us
  kOther,         ///< everything else: I/O errors, out of memory, SQL errors
};
inline constexpr int kFaults = 8;

struct Failure {
  Fault fault = Fault::kOther;
  std::string message;  ///< one line: what was tried and what SQLite or the system said
};

template <class T>
using Attempt = tl::expected<T, Failure>;

/// The same as a Result, for what a person asked for: kStoreError.
template <class T>
Result<T> result_of(Attempt<T> attempt) {
  return std::move(attempt).map_error(
      [](const Failure& failure) { return Error{ErrorKind::kStoreError, failure.message, {}}; });
}

inline tl::unexpected<Failure> fail(Fault fault, std::string message) {
  return tl::make_unexpected(Failure{fault, std::move(message)});
}

}  // namespace laya::cache
