// The database file: its name, its tables, how it is opened, and how a broken one is put aside.
// Internal to cache/.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "cache/fault.h"
#include "cache/file_system.h"
#include "cache/sqlite.h"

namespace laya::cache {

/// The format version is part of the name: another version has another file, so that they never
/// meet. It is also the database's user_version.
inline constexpr char kDatabaseName[] = "kernels-v4.sqlite";

/// The database of `directory`, which must be absolute and free of symbolic links.
std::filesystem::path database_file(const std::filesystem::path& directory);

/// Where a damaged database goes; a new one replaces the one before, so that they don't pile up.
std::filesystem::path damaged_file(const std::filesystem::path& file);

/// Where the locks of those who build a record of `file` are.
std::filesystem::path building_file(const std::filesystem::path& file);

/// Opens `file` for reading and writing, and makes it first (mode 0600) if it is not there.
/// A file of others, or that others can write to, is kForeign, one of another application or
/// version kOtherFormat; both are left as they are. Waits up to `timeout` for other processes that
/// open or make it at the same time.
Attempt<Connection> open_database(const std::filesystem::path& file, JournalMode journal,
                                  std::chrono::milliseconds timeout);

/// Makes a database in the empty `file` that nobody else uses. It keeps no journal: what goes wrong
/// before it is closed leaves a file to be thrown away.
Attempt<Connection> create_database(const std::filesystem::path& file);

/// Opens an existing `file` without changing anything.
Attempt<Connection> open_read_only(const std::filesystem::path& file);

/// Opens a cache that belongs to this user or root and that nobody changes: `path` is a database
/// file or a directory that holds one. Takes no locks and makes no files.
Attempt<Connection> open_layer(const std::filesystem::path& path);

/// Tells one file from another that later has the same name.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;  ///< 0: no file
  bool operator==(const FileIdentity&) const = default;
};
FileIdentity identity_of(const std::filesystem::path& file);

/// A new database in the place of a damaged one.
struct Replacement {
  Connection connection;
  int64_t saved = 0;  ///< records that could be taken over from the damaged one
};

/// Moves the damaged database `identity` at `file` to damaged_file(), makes a new one and copies
/// into it what is undamaged, which may take a second. Nothing: another process has done so
/// already, and what is at `file` now is left alone. A Failure leaves the damaged one in place.
/// Connections to the moved file stay usable; SQLite lets them write no more (see has_moved()).
Attempt<std::optional<Replacement>> replace_damaged(const std::filesystem::path& file,
                                                    const FileIdentity& identity,
                                                    JournalMode journal,
                                                    std::chrono::milliseconds timeout);

/// Deletes what replace_damaged() has kept.
void remove_damaged(const std::filesystem::path& file);

}  // namespace laya::cache
