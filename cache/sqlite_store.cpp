// Finding and storing records; waiting, recovery and counting around it.
#include "cache/sqlite_store.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "cache/codec.h"
#include "cache/result.h"

namespace laya::cache {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr microseconds kFirstPause{200};
constexpr microseconds kLongestPause{10'000};

/// Hits between two writes of recency. Large, as a process seldom finds this many kernels: most
/// write with their next put() or at their end.
constexpr size_t kUsesPerFlush = 512;

/// Where an eviction ends, so that not every put() evicts.
int64_t low_mark(int64_t max_bytes) {
  return max_bytes - max_bytes / 10;
}

/// With less than this on the disk, the file should not grow: the write-ahead log needs space
/// before anything can be stored or evicted, so a disk that is really full leaves nothing to be
/// done.
constexpr int64_t kReservedBytes = 16 << 20;

}  // namespace

SqliteStore::SqliteStore(StoreOptions options, Place place)
    : options_(std::move(options)), place_(std::move(place)), locks_(building_file(place_.file)) {
  watch_forks(*this);
}

SqliteStore::~SqliteStore() {
  flush();
  // New records go into the main file, so that the directory can be baked into an image or read by
  // who may not write; so does much recency, since the next process reads the whole log when it
  // opens it. That waits for the disk, so a process that has only read some records leaves it
  // alone.
  if (counters_.stores > 0 || counters_.hits > static_cast<int64_t>(kUsesPerFlush)) {
    (void)run([](Connection& connection) -> Attempt<void> {
      connection.checkpoint_on_close(true);
      return {};
    });
  }
  {
    const std::lock_guard lock(mutex_);
    connection_ = Connection();
  }
  unwatch_forks(*this);
}

Attempt<void> SqliteStore::run(const Work& work) {
  const auto deadline = steady_clock::now() + options_.busy_timeout;
  for (microseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    std::string notice;
    Attempt<void> result = run_once(work, notice);
    if (!notice.empty()) {
      ++counters_.damaged;
      warn(notice);
      continue;  // With the new database, which holds what was undamaged in the old one.
    }
    const bool try_again = !result && result.error().fault == Fault::kBusy;
    if (!try_again || steady_clock::now() + pause > deadline) return result;
    std::this_thread::sleep_for(pause);
  }
}

Attempt<void> SqliteStore::run_once(const Work& work, std::string& notice) {
  const std::lock_guard lock(mutex_);
  const FileIdentity found = connection_ ? FileIdentity{} : identity_of(place_.file);
  if (auto connected = ensure_connected(); !connected) {
    if (connected.error().fault == Fault::kDamaged) recover(found, notice);
    return connected;
  }
  Attempt<void> result = work(connection_);
  if (result) return result;
  const Fault fault = result.error().fault;
  if (fault == Fault::kDamaged || fault == Fault::kReadOnly) {
    // In this order: if the file has not moved by now, the identity is that of our file.
    const FileIdentity identity = identity_of(place_.file);
    const bool moved = connection_.has_moved();
    if (moved) connection_ = Connection();
    if (!moved && fault == Fault::kDamaged) recover(identity, notice);
  }
  return result;
}

Attempt<void> SqliteStore::ensure_connected() {
  if (is_unguarded_child()) {
    connection_.abandon();
    return fail(Fault::kOther, "the store was opened before a fork that no handler could see");
  }
  if (connection_) return {};
  if (place_.mode == StoreMode::kReadOnly) {
    LAYA_ASSIGN(connection_, open_read_only(place_.file));
  } else {
    // No waiting under the mutex: attempt() waits.
    LAYA_ASSIGN(connection_, open_database(place_.file, place_.journal, milliseconds(0)));
  }
  return {};
}

void SqliteStore::recover(const FileIdentity& identity, std::string& notice) {
  connection_ = Connection();
  if (place_.mode != StoreMode::kReadWrite || recovered_) return;
  // No waiting under the mutex: if another process is at it, the next call tries again.
  auto replaced = replace_damaged(place_.file, identity, place_.journal, milliseconds(0));
  if (!replaced || !*replaced) return;
  recovered_ = true;
  connection_ = std::move((*replaced)->connection);
  notice = place_.file.string() + " was damaged; it is now " + damaged_file(place_.file).string() +
           " and a new one is started with the " + std::to_string((*replaced)->saved) +
           " records that could be saved";
}

Attempt<void> SqliteStore::connect() {
  return run([](Connection&) -> Attempt<void> { return {}; });
}

std::optional<Record> SqliteStore::find(const Key& key, std::string_view producer) {
  std::optional<Record> record = look_up(key, producer);
  ++(record ? counters_.hits : counters_.misses);
  return record;
}

std::optional<Record> SqliteStore::look_up(const Key& key, std::string_view producer) {
  auto found = read_entry(
      [&](Connection& connection) { return read_row(connection, key.digest, producer); });
  if (!found) {
    report(found.error());
    return std::nullopt;
  }
  if (!*found) return std::nullopt;
  Entry& entry = **found;
  Row& row = entry.row;
  if (!is_intact(row.record)) {
    drop_damaged(row);
    return std::nullopt;
  }
  if (!entry.common) {
    // The record stays: whoever stores the next one with this text puts it right for all.
    report({Fault::kDamaged, "a text that the key of record " + row.record.digest.hex() + " in " +
                                 place_.file.string() +
                                 " shares with others is damaged; the record is built again, " +
                                 "which mends the text for all of them"});
    return std::nullopt;
  }
  // Two texts with one digest: not damage, the other record stays.
  if (!entry.has_key_text(key.text)) return std::nullopt;
  const int64_t id = row.id;
  std::optional<Record> record = decode(std::move(row.record));
  if (record) note_use(id);
  return record;
}

BuildTurn SqliteStore::await_turn(const Key& key, std::string_view producer) {
  // Who cannot store has nothing to give to those who wait.
  if (place_.mode != StoreMode::kReadWrite || is_unguarded_child()) return {};
  auto claim = locks_.acquire(key.digest, producer, options_.build_wait);
  if (!claim) {
    Failure failure = claim.error();
    if (failure.fault == Fault::kBusy) {
      failure.message = "another process has been building " + key.digest.hex() + " for " +
                        std::to_string(options_.build_wait.count()) +
                        " ms; it is built here too (LAYA_JIT_WAIT sets how long to wait)";
    }
    report(failure);
    return {};
  }
  // Whoever had the lock may have stored the record by now.
  std::optional<Record> record = look_up(key, producer);
  if (record) {
    ++counters_.waits;
    return {std::move(record), nullptr};
  }
  return {std::nullopt, *std::move(claim)};
}

bool SqliteStore::put(const Key& key, const Record& record) {
  const StoredRecord encoded = encode(key, record);
  const int64_t bytes = cache::stored_bytes(encoded) + static_cast<int64_t>(key.common().size());
  if (bytes > options_.max_bytes) {
    report({Fault::kOther, "an artifact of " + std::to_string(bytes) +
                               " bytes is larger than the whole cache may be"});
    return false;
  }
  const std::vector<int64_t> uses = take_uses();
  auto id = write(encoded, key.common(), uses);
  if (!id) {
    report(id.error());
    return false;
  }
  ++counters_.stores;
  trim(*id, bytes);
  return true;
}

Attempt<int64_t> SqliteStore::write(const StoredRecord& record, std::string_view common,
                                    const std::vector<int64_t>& uses) {
  auto id = write_once(record, common, uses);
  if (id) return id;
  switch (id.error().fault) {
    case Fault::kFull:
      if (!make_room()) return id;
      return write_once(record, common, uses);
    case Fault::kInconsistent:
      report(id.error());
      if (!repair()) return id;
      return write_once(record, common, uses);
    case Fault::kDamaged:
    case Fault::kReadOnly:
      // By now the connection to a file that another process has moved is closed.
      if (place_.mode != StoreMode::kReadWrite) return id;
      report(id.error());
      return write_once(record, common, uses);
    default: return id;
  }
}

Attempt<int64_t> SqliteStore::write_once(const StoredRecord& record, std::string_view common,
                                         const std::vector<int64_t>& uses) {
  if (place_.mode != StoreMode::kReadWrite) {
    return fail(Fault::kReadOnly, place_.file.string() + " is read-only");
  }
  return attempt([&](Connection& connection) -> Attempt<int64_t> {
    // A write to a file that is not there any more would succeed and be lost.
    if (connection.has_moved()) return fail(Fault::kReadOnly, place_.file.string() + " was moved");
    LAYA_ASSIGN(Transaction transaction, Transaction::begin(connection));
    LAYA_TRY(write_uses(connection, uses));
    LAYA_ASSIGN(const int64_t id, write_row(connection, record, common, now()));
    LAYA_TRY(transaction.commit());
    return id;
  });
}

Attempt<void> SqliteStore::make_room() {
  remove_damaged(place_.file);
  return attempt([&](Connection& connection) -> Attempt<void> {
    // The space of the WAL file may be all that an eviction has to work with.
    LAYA_TRY(Query(connection, "PRAGMA wal_checkpoint(TRUNCATE)").step());
    LAYA_ASSIGN(const int64_t bytes, total_bytes(connection));
    LAYA_ASSIGN(const int64_t removed,
                evict(connection, low_mark(bytes), kRowsPerEviction, /*keep=*/0));
    counters_.evicted += removed;
    return {};
  });
}

Attempt<void> SqliteStore::repair() {
  return attempt([](Connection& connection) -> Attempt<void> {
    auto repaired = repair_accounts(connection);
    if (!repaired && repaired.error().fault == Fault::kInconsistent) {
      // Tables that cannot be made to agree: what is intact goes into a new database.
      repaired.error().fault = Fault::kDamaged;
    }
    return repaired;
  });
}

Attempt<std::optional<int64_t>> SqliteStore::eviction_target(Connection& connection,
                                                             int64_t last_put) const {
  LAYA_ASSIGN(const int64_t bytes, total_bytes(connection));
  if (bytes > options_.max_bytes) return low_mark(options_.max_bytes);
  if (free_bytes(place_.file.parent_path()) >= kReservedBytes) return std::nullopt;
  LAYA_ASSIGN(const int64_t reusable, reusable_bytes(connection));
  if (reusable > 2 * last_put) return std::nullopt;
  return low_mark(bytes);
}

void SqliteStore::trim(int64_t keep, int64_t last_put) {
  const auto target =
      attempt([&](Connection& connection) { return eviction_target(connection, last_put); });
  if (!target) return report(target.error());
  for (int64_t removed = kRowsPerEviction; *target && removed == kRowsPerEviction;) {
    const auto evicted = attempt([&](Connection& connection) {
      return evict(connection, **target, kRowsPerEviction, keep);
    });
    if (!evicted) return report(evicted.error());
    removed = *evicted;
    counters_.evicted += removed;
  }
}

void SqliteStore::drop(const Key& key, std::string_view producer) {
  if (place_.mode != StoreMode::kReadWrite) return;
  const auto removed = attempt(
      [&](Connection& connection) { return remove_row(connection, row_id(key.digest, producer)); });
  if (!removed) report(removed.error());
}

void SqliteStore::drop_damaged(const Row& row) {
  report({Fault::kDamaged, "record " + row.record.digest.hex() + " in " + place_.file.string() +
                               " is damaged and left out"});
  if (place_.mode != StoreMode::kReadWrite) return;
  const auto removed =
      attempt([&](Connection& connection) { return remove_row(connection, row.id); });
  if (!removed) report(removed.error());
}

void SqliteStore::note_use(int64_t id) {
  if (place_.mode != StoreMode::kReadWrite) return;
  bool full = false;
  {
    const std::lock_guard lock(uses_mutex_);
    uses_.push_back(id);
    full = uses_.size() >= kUsesPerFlush;
  }
  if (full) flush();
}

std::vector<int64_t> SqliteStore::take_uses() {
  const std::lock_guard lock(uses_mutex_);
  return std::exchange(uses_, {});
}

void SqliteStore::flush() {
  const std::vector<int64_t> uses = take_uses();
  if (uses.empty()) return;
  const auto written = attempt([&](Connection& connection) -> Attempt<void> {
    LAYA_ASSIGN(Transaction transaction, Transaction::begin(connection));
    LAYA_TRY(append_uses(connection, uses));
    return transaction.commit();
  });
  // Recency is a hint: what could not be written is let go.
  if (!written) report(written.error());
}

void SqliteStore::count_uses() {
  flush();
  if (place_.mode != StoreMode::kReadWrite) return;
  const auto counted = attempt([&](Connection& connection) -> Attempt<void> {
    // Who has nothing to write should not wait for those who write.
    LAYA_ASSIGN(const int64_t appended, appended_uses(connection));
    if (appended == 0) return {};
    LAYA_ASSIGN(Transaction transaction, Transaction::begin(connection));
    LAYA_TRY(write_uses(connection, {}));
    return transaction.commit();
  });
  if (!counted) report(counted.error());
}

StoreStats SqliteStore::stats() const {
  StoreStats stats;
  stats.hits = counters_.hits;
  stats.misses = counters_.misses;
  stats.waits = counters_.waits;
  stats.stores = counters_.stores;
  stats.damaged = counters_.damaged;
  stats.busy = counters_.busy;
  stats.errors = counters_.errors;
  stats.evicted = counters_.evicted;
  return stats;
}

void SqliteStore::warn(const std::string& message) const {
  if (options_.log) options_.log(LogLevel::kWarning, "cache: " + message);
}

void SqliteStore::report(const Failure& failure) {
  switch (failure.fault) {
    case Fault::kBusy: ++counters_.busy; break;
    case Fault::kDamaged:
    case Fault::kInconsistent: ++counters_.damaged; break;
    default: ++counters_.errors; break;
  }
  if (!warned_[static_cast<size_t>(failure.fault)].exchange(true)) warn(failure.message);
}

void SqliteStore::before_fork() {
  mutex_.lock();
  uses_mutex_.lock();
  connection_ = Connection();
}

void SqliteStore::after_fork(bool in_child) {
  if (in_child) uses_.clear();  // The parent writes them.
  uses_mutex_.unlock();
  mutex_.unlock();
}

}  // namespace laya::cache
