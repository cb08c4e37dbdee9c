// Opening, making and putting aside the database file.
#include "cache/database.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "cache/file_lock.h"
#include "cache/result.h"
#include "cache/salvage.h"

namespace laya::cache {
namespace {

constexpr int64_t kApplicationId = 0x4c617961;  // "Laya"
constexpr int64_t kFormatVersion = 4;

// artifacts never changes but by whole rows; what changes with use is in a table of its own,
// because an UPDATE rewrites the whole row. Its ids are row_id(): an index over digests would be
// one more page to read for each hit, at random. texts holds the ends of key texts, each once; it
// goes with the last record that needs it. That and totals are seen to by triggers, so that no
// statement can forget them. recent holds what processes that only read have used, a row for each;
// usage is brought up to date with it when something is stored or listed, since that changes as
// many pages as there are records.
constexpr char kSchema[] = R"sql(
  CREATE TABLE artifacts(
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    producer BLOB NOT NULL,
    common BLOB NOT NULL,
    checksum BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    artifact_bytes INTEGER NOT NULL,
    metadata BLOB NOT NULL,
    own_text BLOB NOT NULL,
    artifact BLOB NOT NULL
  ) STRICT;
  CREATE INDEX artifacts_by_common ON artifacts(common);
  CREATE TABLE texts(
    digest BLOB NOT NULL UNIQUE,
    bytes INTEGER NOT NULL,
    text BLOB NOT NULL
  ) STRICT;
  CREATE TABLE usage(
    id INTEGER PRIMARY KEY,
    used INTEGER NOT NULL,
    hits INTEGER NOT NULL,
    stored_bytes INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX usage_by_use ON usage(used);
  CREATE TABLE recent(ids BLOB NOT NULL) STRICT;
  CREATE TABLE totals(bytes INTEGER NOT NULL) STRICT;
  INSERT INTO totals VALUES(0);
  CREATE TRIGGER artifact_removed AFTER DELETE ON artifacts BEGIN
    DELETE FROM usage WHERE id = old.id;
    DELETE FROM texts WHERE digest = old.common
      AND NOT EXISTS (SELECT 1 FROM artifacts WHERE common = old.common);
  END;
  CREATE TRIGGER usage_added AFTER INSERT ON usage BEGIN
    UPDATE totals SET bytes = bytes + new.stored_bytes;
  END;
  CREATE TRIGGER usage_removed AFTER DELETE ON usage BEGIN
    UPDATE totals SET bytes = bytes - old.stored_bytes;
  END;
  CREATE TRIGGER text_added AFTER INSERT ON texts BEGIN
    UPDATE totals SET bytes = bytes + length(new.text);
  END;
  CREATE TRIGGER text_removed AFTER DELETE ON texts BEGIN
    UPDATE totals SET bytes = bytes - length(old.text);
  END;
  PRAGMA application_id = 0x4c617961;
  PRAGMA user_version = 4;
)sql";

// No memory map: a file that shrinks would end the host program. A page cache that holds the inner
// pages of a database of 100,000 records beside the records that pass through it, and little more:
// memory that a process never had before costs more than reading a page again.
constexpr char kSettings[] = R"sql(
  PRAGMA mmap_size = 0;
  PRAGMA cell_size_check = ON;
  PRAGMA cache_size = -2048;
)sql";

constexpr size_t kPageBytes = 16384;

/// Longest time that is spent on taking records out of a damaged database; others wait meanwhile.
constexpr std::chrono::seconds kSalvageTime{1};

std::string system_error(const std::string& what, int error) {
  return what + ": " + std::generic_category().message(error);
}

std::filesystem::path with_suffix(const std::filesystem::path& file, const char* suffix) {
  return std::filesystem::path(file.native() + suffix);
}

/// Makes an empty file of mode 0600. SQLite would make it as the umask says; its other files take
/// over the mode of this one.
Attempt<void> create_private(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0) {
    ::close(fd);
    return {};
  }
  // An existing file is not even opened: closing it would drop the locks that another connection of
  // this process holds on it.
  if (errno == EEXIST) return {};
  const int error = errno;
  const Fault fault = error == ENOSPC || error == EDQUOT  ? Fault::kFull
                      : error == EROFS || error == EACCES ? Fault::kReadOnly
                                                          : Fault::kOther;
  return fail(fault, system_error("create " + file.string(), error));
}

Attempt<void> check_private(const std::filesystem::path& file) {
  struct stat info = {};
  if (::lstat(file.c_str(), &info) != 0) {
    return fail(Fault::kOther, system_error(file.string(), errno));
  }
  if (!S_ISREG(info.st_mode)) return fail(Fault::kForeign, file.string() + " is no regular file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return fail(Fault::kForeign, file.string() + " belongs to user " + std::to_string(info.st_uid));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Fault::kForeign, file.string() + " can be written by others");
  }
  return {};
}

/// Whether nobody else could put another file in the place of `file`.
Attempt<void> check_irreplaceable(const std::filesystem::path& file) {
  const std::filesystem::path directory = file.parent_path();
  struct stat info = {};
  if (::stat(directory.c_str(), &info) != 0) {
    return fail(Fault::kOther, system_error(directory.string(), errno));
  }
  const bool ours = info.st_uid == ::geteuid() || info.st_uid == 0;
  const bool shared = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  // With the sticky bit, as in /tmp, files can be replaced by their owner only.
  if (ours && (!shared || (info.st_mode & S_ISVTX) != 0)) return {};
  return fail(Fault::kForeign, directory.string() + " can be written by others, who could put " +
                                   "another file there");
}

/// True: ours. False: empty, so it may become ours.
Attempt<bool> is_ours(Connection& connection, const std::filesystem::path& file) {
  LAYA_ASSIGN(const int64_t id, connection.integer("PRAGMA application_id"));
  LAYA_ASSIGN(const int64_t version, connection.integer("PRAGMA user_version"));
  if (id == kApplicationId && version == kFormatVersion) return true;
  LAYA_ASSIGN(const int64_t objects, connection.integer("SELECT count(*) FROM sqlite_schema"));
  if (id == 0 && version == 0 && objects == 0) return false;
  return fail(Fault::kOtherFormat,
              file.string() + " is not a cache of this version (application id " +
                  std::to_string(id) + ", version " + std::to_string(version) + ")");
}

Attempt<void> set_journal(Connection& connection, JournalMode journal) {
  const bool wal = journal == JournalMode::kWal;
  LAYA_ASSIGN(const std::string mode,
              connection.text(wal ? "PRAGMA journal_mode = WAL" : "PRAGMA journal_mode = DELETE"));
  if (mode != (wal ? "wal" : "delete")) {
    return fail(Fault::kOther, "the journal mode cannot be changed, it stays " + mode);
  }
  // WAL with NORMAL may lose the last commits in a power cut, but never tears one.
  return connection.execute(
      wal ? "PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 8388608;"
            "PRAGMA wal_autocheckpoint = 256"
          : "PRAGMA synchronous = FULL");
}

Attempt<void> create_tables(Connection& connection) {
  LAYA_ASSIGN(Transaction transaction, Transaction::begin(connection));
  LAYA_TRY(connection.execute(kSchema));
  return transaction.commit();
}

Attempt<Connection> open_locked(const std::filesystem::path& file, JournalMode journal) {
  LAYA_TRY(create_private(file));
  LAYA_TRY(check_private(file));
  LAYA_ASSIGN(Connection connection, Connection::open(file, Connection::Access::kReadWrite));
  // A database in WAL mode that was copied to a network file system: exclusive locking reads it
  // without shared memory, which must not be used there.
  const bool rollback = journal == JournalMode::kRollback;
  if (rollback) LAYA_TRY(connection.text("PRAGMA locking_mode = EXCLUSIVE"));
  LAYA_TRY(connection.execute(kSettings));
  LAYA_ASSIGN(const bool ours, is_ours(connection, file));
  // The pages of an artifact form a chain, so large pages mean few steps; larger ones than this
  // make each small change of an index costly.
  if (!ours) LAYA_TRY(connection.execute("PRAGMA page_size = 16384"));  // kPageBytes
  LAYA_TRY(set_journal(connection, journal));
  if (!ours) LAYA_TRY(create_tables(connection));
  if (rollback) LAYA_TRY(connection.text("PRAGMA locking_mode = NORMAL"));
  // Reads the schema, and gives back the lock of exclusive locking.
  LAYA_TRY(connection.integer("SELECT bytes FROM totals"));
  // We may write, so it is the file's head that says otherwise.
  if (connection.is_read_only()) return fail(Fault::kDamaged, file.string() + " refuses writing");
  return connection;
}

Attempt<Connection> open_ours(const std::filesystem::path& file, Connection::Access access) {
  LAYA_ASSIGN(Connection connection, Connection::open(file, access));
  LAYA_TRY(connection.execute(kSettings));
  LAYA_ASSIGN(const bool ours, is_ours(connection, file));
  if (!ours) return fail(Fault::kOtherFormat, file.string() + " is empty");
  LAYA_TRY(connection.integer("SELECT bytes FROM totals"));
  return connection;
}

/// Moves a database and what belongs to it over whatever is at `to`.
Attempt<void> move_database(const std::filesystem::path& from, const std::filesystem::path& to) {
  // The main file goes first: SQLite deletes a journal or WAL without a database by itself, so a
  // crash in between does no harm.
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return fail(Fault::kOther, system_error("rename " + from.string(), errno));
  }
  for (const char* suffix : {"-wal", "-journal"}) {
    const auto source = with_suffix(from, suffix), target = with_suffix(to, suffix);
    if (::rename(source.c_str(), target.c_str()) != 0) ::unlink(target.c_str());
  }
  for (const auto& file : {from, to}) ::unlink(with_suffix(file, "-shm").c_str());
  return {};
}

/// Puts the first page of an empty database in the place of that of a damaged one, as long as it
/// lives. All databases of this version have the same first page, but for counters: it holds the
/// head of the file and the schema.
class LentFirstPage {
 public:
  LentFirstPage(Connection& empty, const std::filesystem::path& file)
      : fd_(::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)), own_(kPageBytes, '\0') {
    std::string page = empty.image().substr(0, kPageBytes);
    lent_ = fd_ >= 0 && page.size() == own_.size() &&
            ::pread(fd_, own_.data(), own_.size(), 0) == static_cast<ssize_t>(own_.size());
    if (!lent_) return;
    // The size of the database; zero: as large as the file is.
    page.replace(28, 4, 4, '\0');
    (void)!::pwrite(fd_, page.data(), page.size(), 0);
  }
  LentFirstPage(const LentFirstPage&) = delete;
  LentFirstPage& operator=(const LentFirstPage&) = delete;
  ~LentFirstPage() {
    if (lent_) (void)!::pwrite(fd_, own_.data(), own_.size(), 0);
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  int fd_;
  std::string own_;
  bool lent_ = false;
};

/// salvage() from the file `aside`, added to `result`.
void salvage_from(const std::filesystem::path& aside, Connection::Access access, Connection& to,
                  std::chrono::steady_clock::time_point deadline, Salvage& result) {
  auto damaged = Connection::open(aside, access);
  if (!damaged) return;
  damaged->read_past_damage();
  if (!damaged->execute(kSettings)) return;
  const Salvage more = salvage(*damaged, to, deadline);
  result = {result.saved + more.saved, more.complete, more.texts};
}

/// Copies what can be read of the database `aside`, with and without its write-ahead log. Returns
/// the number of records.
int64_t salvage_into(Connection& connection, const std::filesystem::path& aside) {
  const auto deadline = std::chrono::steady_clock::now() + kSalvageTime;
  std::error_code ignored;
  Salvage result;
  if (std::filesystem::exists(with_suffix(aside, "-wal"), ignored)) {
    salvage_from(aside, Connection::Access::kReadOnly, connection, deadline, result);
  }
  if (!result.complete) {
    salvage_from(aside, Connection::Access::kImmutable, connection, deadline, result);
  }
  if (result.saved == 0 || !result.texts) {
    const LentFirstPage page(connection, aside);
    salvage_from(aside, Connection::Access::kImmutable, connection, deadline, result);
  }
  ::unlink(with_suffix(aside, "-shm").c_str());
  return result.saved;
}

Attempt<FileLock> lock_for(const std::filesystem::path& file, std::chrono::milliseconds timeout) {
  return FileLock::acquire(with_suffix(file, ".lock"), timeout);
}

}  // namespace

std::filesystem::path database_file(const std::filesystem::path& directory) {
  return directory / kDatabaseName;
}

std::filesystem::path damaged_file(const std::filesystem::path& file) {
  return with_suffix(file, ".damaged");
}

std::filesystem::path building_file(const std::filesystem::path& file) {
  return with_suffix(file, ".building");
}

Attempt<Connection> open_database(const std::filesystem::path& file, JournalMode journal,
                                  std::chrono::milliseconds timeout) {
  LAYA_ASSIGN(const FileLock lock, lock_for(file, timeout));
  return open_locked(file, journal);
}

Attempt<Connection> create_database(const std::filesystem::path& file) {
  LAYA_ASSIGN(Connection connection, Connection::open(file, Connection::Access::kReadWrite));
  LAYA_TRY(
      connection.execute("PRAGMA page_size = 16384; PRAGMA journal_mode = OFF;"
                         "PRAGMA synchronous = OFF"));
  LAYA_TRY(create_tables(connection));
  return connection;
}

Attempt<Connection> open_read_only(const std::filesystem::path& file) {
  LAYA_TRY(check_private(file));
  // Recent records are in the WAL file, if there is one. Reading it needs the -shm file, so where
  // that cannot be had the main file alone has to do: it is a whole database, only older.
  std::error_code ignored;
  if (std::filesystem::exists(with_suffix(file, "-wal"), ignored)) {
    auto connection = open_ours(file, Connection::Access::kReadOnly);
    if (connection) return connection;
  }
  return open_ours(file, Connection::Access::kImmutable);
}

Attempt<Connection> open_layer(const std::filesystem::path& path) {
  std::error_code error;
  auto file = std::filesystem::canonical(path, error);
  if (!error && std::filesystem::is_directory(file, error)) {
    file = std::filesystem::canonical(database_file(file), error);
  }
  if (error) return fail(Fault::kOther, error.message());
  LAYA_TRY(check_private(file));
  LAYA_TRY(check_irreplaceable(file));
  return open_ours(file, Connection::Access::kImmutable);
}

FileIdentity identity_of(const std::filesystem::path& file) {
  struct stat info = {};
  if (::lstat(file.c_str(), &info) != 0) return {};
  return {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino)};
}

Attempt<std::optional<Replacement>> replace_damaged(const std::filesystem::path& file,
                                                    const FileIdentity& identity,
                                                    JournalMode journal,
                                                    std::chrono::milliseconds timeout) {
  LAYA_ASSIGN(const FileLock lock, lock_for(file, timeout));
  if (identity.inode == 0 || identity_of(file) != identity) return std::nullopt;
  const std::filesystem::path aside = damaged_file(file);
  LAYA_TRY(move_database(file, aside));
  auto connection = open_locked(file, journal);
  if (!connection) {
    // Better a damaged database than none: what refused a new one may also have been what made
    // this one look damaged.
    (void)move_database(aside, file);
    return tl::make_unexpected(std::move(connection).error());
  }
  Replacement replacement{*std::move(connection), 0};
  replacement.saved = salvage_into(replacement.connection, aside);
  return replacement;
}

void remove_damaged(const std::filesystem::path& file) {
  for (const char* suffix : {"", "-wal", "-journal"}) {
    ::unlink(with_suffix(damaged_file(file), suffix).c_str());
  }
}

}  // namespace laya::cache
