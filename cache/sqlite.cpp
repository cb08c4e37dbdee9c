// SQLite's C API behind the types of sqlite.h.
#include "cache/sqlite.h"

#include <sqlite3.h>

#include <cerrno>
#include <memory>

#include "cache/result.h"

namespace laya::cache {
namespace {

Fault fault_of(int code) {
  // A file that was replaced under us is opened again, like one that became read-only. PROTOCOL is
  // no busy: SQLite has waited ten seconds for locks that this file system does not give.
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return Fault::kBusy;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return Fault::kDamaged;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH: return Fault::kInconsistent;
    case SQLITE_FULL: return Fault::kFull;
    case SQLITE_READONLY:
    case SQLITE_PERM: return Fault::kReadOnly;
    default: return Fault::kOther;
  }
}

/// Whether that is why a write failed: SQLite knows a full disk when it meets one, but not this.
bool is_quota_used_up(sqlite3* handle) {
  for (const int which : {SQLITE_FCNTL_FILE_POINTER, SQLITE_FCNTL_JOURNAL_POINTER}) {
    sqlite3_file* file = nullptr;
    int error = 0;
    const bool known =
        sqlite3_file_control(handle, "main", which, static_cast<void*>(&file)) == SQLITE_OK &&
        file != nullptr && file->pMethods != nullptr &&
        file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &error) == SQLITE_OK;
    if (known && error == EDQUOT) return true;
  }
  return false;
}

Failure failure_of(sqlite3* handle, int code) {
  const char* file = handle != nullptr ? sqlite3_db_filename(handle, "main") : nullptr;
  std::string message = file != nullptr ? file : "SQLite";
  message += ": ";
  message += handle != nullptr ? sqlite3_errmsg(handle) : sqlite3_errstr(code);
  message += " (SQLite error " + std::to_string(code) + ")";
  if (handle != nullptr && code == SQLITE_IOERR_WRITE && is_quota_used_up(handle)) {
    return {Fault::kFull, message + ": disk quota exceeded"};
  }
  return {fault_of(code), std::move(message)};
}

/// `file` as a URI that means exactly this file: SQLite would read ?, # and % as syntax.
std::string immutable_uri(const std::string& file) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  static constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-";
  std::string uri = "file:";
  for (const char c : file) {
    if (kPlain.find(c) != std::string_view::npos) {
      uri += c;
    } else {
      uri += '%';
      uri += kDigits[static_cast<uint8_t>(c) >> 4];
      uri += kDigits[static_cast<uint8_t>(c) & 15];
    }
  }
  return uri + "?immutable=1";
}

int open_flags(Connection::Access access) {
  // The callers lock, so SQLite need not. Private cache: no state shared between connections.
  const int common =
      SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  switch (access) {
    case Connection::Access::kReadWrite: return common | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    case Connection::Access::kReadOnly: return common | SQLITE_OPEN_READONLY;
    case Connection::Access::kImmutable: return common | SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
  }
  return common | SQLITE_OPEN_READONLY;
}

}  // namespace

Statement::~Statement() {
  sqlite3_finalize(handle_);
}

Attempt<Connection> Connection::open(const std::filesystem::path& file, Access access) {
  const std::string name =
      access == Access::kImmutable ? immutable_uri(file.native()) : file.native();
  Connection connection;
  const int code = sqlite3_open_v2(name.c_str(), &connection.handle_, open_flags(access), nullptr);
  if (code != SQLITE_OK) {
    Failure failure = failure_of(connection.handle_, code);
    if (failure.message.find(file.native()) == std::string::npos) {
      failure.message = file.string() + ": " + failure.message;
    }
    return tl::make_unexpected(std::move(failure));
  }
  // A database may come from somebody else: its schema gets no say beyond plain tables.
  for (const auto& [option, value] :
       {std::pair(SQLITE_DBCONFIG_DEFENSIVE, 1), std::pair(SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        std::pair(SQLITE_DBCONFIG_ENABLE_VIEW, 0),
        std::pair(SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)}) {
    const int refused = sqlite3_db_config(connection.handle_, option, value, nullptr);
    if (refused != SQLITE_OK) {
      return tl::make_unexpected(failure_of(connection.handle_, refused));
    }
  }
  return connection;
}

Connection::~Connection() {
  statements_.clear();
  sqlite3_close(handle_);  // Cannot fail: all statements are finalized.
}

Attempt<void> Connection::execute(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return tl::make_unexpected(failure_of(handle_, code));
  return {};
}

Attempt<int64_t> Connection::integer(const char* sql) {
  Query query(*this, sql);
  LAYA_ASSIGN(const bool row, query.step());
  if (!row) return fail(Fault::kOther, std::string(sql) + ": no row");
  return query.integer(0);
}

Attempt<std::string> Connection::text(const char* sql) {
  Query query(*this, sql);
  LAYA_ASSIGN(const bool row, query.step());
  if (!row) return fail(Fault::kOther, std::string(sql) + ": no row");
  return std::string(query.blob(0));
}

Attempt<sqlite3_stmt*> Connection::statement(const char* sql) {
  for (const auto& [text, prepared] : statements_) {
    if (text == sql) return prepared.get();
  }
  sqlite3_stmt* handle = nullptr;
  const int code =
      sqlite3_prepare_v3(handle_, sql, -1, SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
  if (code != SQLITE_OK) {
    Failure failure = failure_of(handle_, code);
    // All our SQL is fixed, so what does not compile finds another schema than ours.
    if (code == SQLITE_ERROR) failure.fault = Fault::kDamaged;
    return tl::make_unexpected(std::move(failure));
  }
  statements_.emplace_back(sql, Statement(handle));
  return handle;
}

int64_t Connection::changes() const {
  return sqlite3_changes64(handle_);
}

bool Connection::has_moved() const {
  int moved = 0;
  const int code = sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  return code == SQLITE_OK && moved != 0;
}

bool Connection::is_read_only() const {
  return sqlite3_db_readonly(handle_, "main") == 1;
}

std::string Connection::image() const {
  sqlite3_int64 size = 0;
  const std::unique_ptr<unsigned char, void (*)(void*)> bytes(
      sqlite3_serialize(handle_, "main", &size, 0), sqlite3_free);
  if (!bytes) return {};
  return {reinterpret_cast<const char*>(bytes.get()), static_cast<size_t>(size)};
}

void Connection::read_past_damage() {
  // With a schema that may be written, SQLite takes errors in it for work in progress.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 0, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1, nullptr);
}

void Connection::checkpoint_on_close(bool on) {
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on ? 0 : 1, nullptr);
}

void Connection::abandon() {
  for (auto& [text, prepared] : statements_) prepared.abandon();
  statements_.clear();
  handle_ = nullptr;
}

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);  // Repeats the error that step() has reported already.
  sqlite3_clear_bindings(statement_);
}

void Query::prepare(Connection& connection, const char* sql) {
  auto statement = connection.statement(sql);
  if (statement) {
    statement_ = *statement;
  } else {
    failed_ = true;
    failure_ = std::move(statement).error();
  }
}

void Query::note(int code) {
  if (failed_ || code == SQLITE_OK) return;
  failed_ = true;
  failure_ = failure_of(sqlite3_db_handle(statement_), code);
}

void Query::bind(int index, int64_t value) {
  if (!failed_) note(sqlite3_bind_int64(statement_, index, value));
}

void Query::bind(int index, Blob value) {
  if (failed_) return;
  // A null pointer would bind NULL, and an empty view may hold one.
  const char* bytes = value.bytes.empty() ? "" : value.bytes.data();
  note(sqlite3_bind_blob64(statement_, index, bytes, value.bytes.size(), SQLITE_STATIC));
}

Attempt<bool> Query::step() {
  if (failed_) return tl::make_unexpected(failure_);
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  note(code);
  return tl::make_unexpected(failure_);
}

Attempt<void> Query::run() {
  LAYA_ASSIGN(const bool row, step());
  if (row) return fail(Fault::kOther, std::string(sqlite3_sql(statement_)) + ": unexpected row");
  return {};
}

int64_t Query::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string_view Query::blob(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  if (bytes == nullptr) return {};
  return {static_cast<const char*>(bytes), static_cast<size_t>(size)};
}

Attempt<Transaction> Transaction::begin(Connection& connection) {
  LAYA_TRY(Query(connection, "BEGIN IMMEDIATE").run());
  return Transaction(connection);
}

Transaction::~Transaction() {
  // SQLite has rolled back by itself after some errors; then this fails, and that is fine.
  if (connection_ != nullptr) (void)Query(*connection_, "ROLLBACK").run();
}

Attempt<void> Transaction::commit() {
  LAYA_TRY(Query(*connection_, "COMMIT").run());
  connection_ = nullptr;
  return {};
}

}  // namespace laya::cache
