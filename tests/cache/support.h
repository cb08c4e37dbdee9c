// What the tests of cache/ share: temporary directories, sample keys and records, a log to look
// into, raw SQL on a database, and code that runs in a child process.
#pragma once

#include <doctest/doctest.h>
#include <grp.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cache/database.h"
#include "cache/key.h"
#include "cache/rows.h"
#include "cache/store.h"

namespace laya::cache::test {

/// A directory of mode 0700 that is removed at the end. `suffix` names one inside it, not yet made.
class TempDirectory {
 public:
  explicit TempDirectory(const std::string& suffix = {})
      : TempDirectory(std::filesystem::temp_directory_path(), suffix) {}

  /// In memory if possible: for tests that open a database hundreds of times, as each wait for a
  /// disk takes milliseconds.
  static TempDirectory in_memory() {
    const bool usable = ::access("/dev/shm", W_OK | X_OK) == 0;
    return TempDirectory(usable ? "/dev/shm" : std::filesystem::temp_directory_path(), "");
  }

  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path database() const { return database_file(path_); }

 private:
  TempDirectory(const std::filesystem::path& parent, const std::string& suffix) {
    std::string name = (parent / "laya-cache-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    root_ = std::filesystem::canonical(name);
    path_ = suffix.empty() ? root_ : root_ / suffix;
  }

  std::filesystem::path root_, path_;
};

/// Collects what a store logs.
class Log {
 public:
  LogFn function() {
    return [this](LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    };
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  /// How many lines hold `text`.
  int count(std::string_view text) {
    int found = 0;
    for (const std::string& line : lines()) found += line.find(text) != std::string::npos;
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

inline StoreOptions options_for(const TempDirectory& directory, Log* log = nullptr) {
  StoreOptions options;
  options.directory = directory.path();
  if (log != nullptr) options.log = log->function();
  return options;
}

/// All these keys have the text of one source in common.
inline Key key_of(std::string_view name) {
  KeyBuilder builder;
  builder.field("version", 1).field("name", name);
  builder.common_from_here().field("source", std::string(2000, '*') + " common source");
  return std::move(builder).finish();
}

/// The id of the row that key_of(`name`) has, for SQL.
inline std::string id_of(std::string_view name, std::string_view producer = "maker-1") {
  return std::to_string(row_id(key_of(name).digest, producer));
}

/// An artifact that differs at every place and for every seed.
inline std::string bytes_of(size_t size, uint32_t seed) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<char>(seed >> 24);
  }
  return bytes;
}

inline Record record_of(uint32_t seed, size_t size = 5000) {
  return {"maker-1", bytes_of(size, seed), "registers=" + std::to_string(seed)};
}

inline bool same(const Record& a, const Record& b) {
  return a.producer == b.producer && a.artifact == b.artifact && a.metadata == b.metadata;
}

/// A second, plain connection to the database, as a stranger would have it.
class RawDatabase {
 public:
  explicit RawDatabase(const std::filesystem::path& file) {
    REQUIRE(sqlite3_open(file.c_str(), &handle_) == SQLITE_OK);
    sqlite3_busy_timeout(handle_, 5000);
  }
  RawDatabase(const RawDatabase&) = delete;
  RawDatabase& operator=(const RawDatabase&) = delete;
  ~RawDatabase() { sqlite3_close(handle_); }

  void execute(const std::string& sql) {
    REQUIRE_MESSAGE(sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK,
                    sqlite3_errmsg(handle_));
  }

  int64_t integer(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    REQUIRE(sqlite3_prepare_v2(handle_, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK);
    REQUIRE(sqlite3_step(statement) == SQLITE_ROW);
    const int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return value;
  }

  std::string text(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    REQUIRE(sqlite3_prepare_v2(handle_, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK);
    REQUIRE(sqlite3_step(statement) == SQLITE_ROW);
    std::string value = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    return value;
  }

 private:
  sqlite3* handle_ = nullptr;
};

/// What Store::stored_bytes() must be, counted anew.
inline int64_t recounted_bytes(const TempDirectory& directory) {
  return RawDatabase(directory.database())
      .integer(
          "SELECT (SELECT coalesce(sum(stored_bytes), 0) FROM usage) + "
          "(SELECT coalesce(sum(length(text)), 0) FROM texts)");
}

/// Forks and runs `body` in the child, whose exit status is what `body` returns.
template <class Body>
pid_t start_child(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(body());
  return child;
}

/// The exit status of `child`, or minus the number of the signal that ended it.
inline int status_of(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

template <class Body>
int in_child(Body body) {
  return status_of(start_child(body));
}

/// In a child: gives up root, for whom no file is read-only. True if this process is not root now.
inline bool become_ordinary_user() {
  if (::geteuid() != 0) return true;
  return ::setgroups(0, nullptr) == 0 && ::setgid(65534) == 0 && ::setuid(65534) == 0;
}

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_file(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(stream.good());
}

/// Overwrites bytes of an existing file in place.
inline void patch_file(const std::filesystem::path& file, size_t offset, std::string_view bytes) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(stream.good());
}

}  // namespace laya::cache::test
