// Taking what is left out of a damaged database. Internal to cache/.
#pragma once

#include <chrono>
#include <cstdint>

#include "cache/sqlite.h"

namespace laya::cache {

struct Salvage {
  int64_t saved = 0;      ///< records copied
  bool complete = false;  ///< all of the source could be read
  bool texts = false;     ///< every record copied so far has its common text
};

/// Copies the undamaged records of `from` to `to`, the last used first, until `deadline`, and the
/// common texts of their keys. A record that `to` has already is left as it is. Goes on behind
/// places that SQLite cannot read, and stops where `to` cannot be written.
Salvage salvage(Connection& from, Connection& to, std::chrono::steady_clock::time_point deadline);

}  // namespace laya::cache
