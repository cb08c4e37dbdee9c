// The part of SQLite that the store uses, as move-only C++: a connection, a query, a transaction.
// Every return code is checked and becomes a Failure; values are bound, never pasted into SQL.
// Internal to cache/. Nothing here is thread-safe: one connection, one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/fault.h"

struct sqlite3;
struct sqlite3_stmt;

namespace laya::cache {

/// One prepared statement. Owned by the Connection that prepared it.
class Statement {
 public:
  Statement() = default;
  explicit Statement(sqlite3_stmt* handle) : handle_(handle) {}
  Statement(Statement&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Statement& operator=(Statement&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Statement();

  sqlite3_stmt* get() const { return handle_; }
  /// Forgets the handle without finalizing it; for a forked child.
  void abandon() { handle_ = nullptr; }

 private:
  sqlite3_stmt* handle_ = nullptr;
};

class Connection {
 public:
  enum class Access {
    kReadWrite,  ///< the file is created if it is not there
    kReadOnly,   ///< takes part in locking, so it may need to write a -shm file
    kImmutable,  ///< no locks and no other files; nobody may change the file meanwhile
  };

  /// `file` must be absolute and free of symbolic links; a link in it is refused.
  static Attempt<Connection> open(const std::filesystem::path& file, Access access);

  Connection() = default;
  Connection(Connection&& other) noexcept { swap(other); }
  Connection& operator=(Connection&& other) noexcept {
    Connection(std::move(other)).swap(*this);
    return *this;
  }
  ~Connection();

  explicit operator bool() const { return handle_ != nullptr; }

  /// Runs statements that return nothing of interest. `sql` is a literal.
  Attempt<void> execute(const char* sql);
  /// The first column of the first row; a missing row is a Failure.
  Attempt<int64_t> integer(const char* sql);
  Attempt<std::string> text(const char* sql);

  /// The statement for `sql`, prepared at the first call. `sql` is a literal, told apart by
  /// address.
  Attempt<sqlite3_stmt*> statement(const char* sql);

  /// Rows changed by the last INSERT, UPDATE or DELETE, not counting what triggers did.
  int64_t changes() const;
  /// Whether the database file was renamed or removed since it was opened.
  bool has_moved() const;

  /// Whether SQLite refuses to write, whatever the file system says.
  bool is_read_only() const;
  /// The bytes of the whole database; empty if they cannot be had.
  std::string image() const;
  /// Lets a file that is shorter than its head says, or whose schema is damaged, be read as far as
  /// that goes. Not to be written any more.
  void read_past_damage();
  /// Whether closing the last connection also copies the write-ahead log into the database, which
  /// makes it one whole file but waits for the disk. Off at first.
  void checkpoint_on_close(bool on);

  /// Forgets all handles without closing them; for a forked child, where closing would do harm.
  void abandon();

 private:
  void swap(Connection& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(statements_, other.statements_);
  }

  sqlite3* handle_ = nullptr;
  std::vector<std::pair<const char*, Statement>> statements_;
};

/// Bytes to bind as a BLOB. All strings are stored as BLOBs: they may hold anything.
struct Blob {
  std::string_view bytes;
};

/// One run of a statement: binds when made, resets when destroyed.
/// Bound bytes must outlive the query. Statements must not be run recursively.
class Query {
 public:
  /// Binds `values` (int64_t or Blob) to ?1, ?2, ...; step() reports what goes wrong.
  template <class... Values>
  Query(Connection& connection, const char* sql, const Values&... values) {
    prepare(connection, sql);
    int index = 0;
    (bind(++index, values), ...);
  }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  ~Query();

  /// True: there is a row. False: done.
  Attempt<bool> step();
  /// Steps a statement that returns no rows.
  Attempt<void> run();

  int64_t integer(int column) const;
  /// Valid until the next step(). Empty for NULL.
  std::string_view blob(int column) const;

 private:
  void prepare(Connection& connection, const char* sql);
  void bind(int index, int64_t value);
  void bind(int index, Blob value);
  void note(int code);

  sqlite3_stmt* statement_ = nullptr;
  bool failed_ = false;
  Failure failure_;
};

/// BEGIN IMMEDIATE (the write lock is taken at once); rolled back unless committed.
class Transaction {
 public:
  static Attempt<Transaction> begin(Connection& connection);

  Transaction(Transaction&& other) noexcept
      : connection_(std::exchange(other.connection_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  Attempt<void> commit();

 private:
  explicit Transaction(Connection& connection) : connection_(&connection) {}

  Connection* connection_;
};

}  // namespace laya::cache
