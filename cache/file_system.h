// What the store wants to know of a file system: which SQLite journal it can be trusted with, as a
// pure function of what statfs() says, and how much space is left. Internal to cache/.
#pragma once

#include <cstdint>
#include <filesystem>

namespace laya::cache {

enum class JournalMode {
  kWal,       ///< readers and a writer at once; needs memory shared between all users of the file
  kRollback,  ///< works wherever file locks do, also between hosts
};

/// `type` is f_type of statfs(). WAL only where the file system is known to belong to one kernel.
/// Network, cluster, FUSE and unknown ones get the rollback journal: taking a local disk for a
/// network one costs a little time, the other mistake costs the database.
JournalMode journal_mode_for(int64_t type);

/// The same for the file system that holds `path`; kRollback if the system does not say.
JournalMode journal_mode_of(const std::filesystem::path& path);

/// Bytes that this user may still write where `path` is; the greatest number if the system does not
/// say.
int64_t free_bytes(const std::filesystem::path& path);

}  // namespace laya::cache
