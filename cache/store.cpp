// Which kind of Store a directory allows.
#include "cache/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "cache/database.h"
#include "cache/directory.h"
#include "cache/file_system.h"
#include "cache/null_store.h"
#include "cache/sqlite_store.h"

namespace laya::cache {
namespace {

void warn(const StoreOptions& options, const std::string& message) {
  if (options.log) options.log(LogLevel::kWarning, "cache: " + message);
}

/// errno, or 0 if this user may write to `path`.
int write_error(const std::filesystem::path& path) {
  return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0 ? 0 : errno;
}

/// Why `file`, or a file of that name in its directory, cannot be written; empty if it can.
std::string why_not_writable(const std::filesystem::path& file) {
  for (const auto& path : {file.parent_path(), file}) {
    const int error = write_error(path);
    if (error != 0 && error != ENOENT) {
      return path.string() + " is not writable: " + std::generic_category().message(error);
    }
  }
  return {};
}

std::unique_ptr<Store> keep_nothing(StoreOptions options, const std::string& reason) {
  warn(options, reason + "; compiled kernels are not kept");
  return make_null_store(std::move(options), reason);
}

}  // namespace

std::unique_ptr<Store> Store::open(StoreOptions options) {
  if (options.directory.empty()) {
    return make_null_store(std::move(options), "no cache directory is set");
  }
  if (auto prepared = prepare_directory(options.directory); !prepared) {
    return keep_nothing(std::move(options), prepared.error().message);
  }
  std::error_code error;
  const auto directory = std::filesystem::canonical(options.directory, error);
  if (error) {
    const std::string reason = options.directory.string() + ": " + error.message();
    return keep_nothing(std::move(options), reason);
  }

  SqliteStore::Place place;
  place.file = database_file(directory);
  place.journal = journal_mode_of(directory);
  place.reason = why_not_writable(place.file);
  if (!place.reason.empty()) place.mode = StoreMode::kReadOnly;

  const std::string reason = place.reason;
  auto store = std::make_unique<SqliteStore>(options, std::move(place));
  const auto connected = store->connect();
  // Busy is for now only, the store tries again with each call.
  if (!connected && connected.error().fault != Fault::kBusy) {
    return keep_nothing(std::move(options),
                        reason.empty()
                            ? connected.error().message
                            : reason + ", nor is it a cache: " + connected.error().message);
  }
  if (!reason.empty()) warn(options, reason + "; the cache is read, but nothing is added to it");
  return store;
}

}  // namespace laya::cache
