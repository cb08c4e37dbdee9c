// Every operation that SQLite asks of the system fails once, in every way, and then all from there
// on: whatever happens, what find() returns is right, what was stored stays, and the directory
// works again as soon as the faults end.
#include "cache/file_system.h"
#include "cache/sqlite_store.h"
#include "tests/cache/fault_table.h"
#include "tests/cache/fault_vfs.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::Duration;
using test::FaultKind;
using test::FaultRow;
using test::FaultVfs;
using test::key_of;
using test::record_of;
using test::same;
using test::TempDirectory;

/// A plain record, one with overflow pages, one with a packed artifact, and a tiny one.
const std::vector<Record>& old_records() {
  static const std::vector<Record> records = {record_of(1, 9000),
                                              record_of(2, 60000),
                                              {"maker-1", std::string(400000, 'x'), "packed"},
                                              record_of(4, 10)};
  return records;
}

Key old_key(size_t i) {
  return key_of("old" + std::to_string(i));
}

std::unique_ptr<Store> open_store(const TempDirectory& temp, JournalMode journal) {
  StoreOptions options = test::options_for(temp);
  options.busy_timeout = std::chrono::milliseconds(2);
  if (journal == JournalMode::kWal) return Store::open(options);
  auto store = std::make_unique<SqliteStore>(
      options, SqliteStore::Place{temp.database(), journal, StoreMode::kReadWrite, ""});
  (void)store->connect();
  return store;
}

/// Whether SQLite is given wrong bytes without being told.
bool is_silent(FaultKind kind) {
  return kind == FaultKind::kShortRead || kind == FaultKind::kFlippedRead;
}

/// A database with old_records(), and room for faults.
class Bench {
 public:
  explicit Bench(JournalMode journal) : journal_(journal), temp_(TempDirectory::in_memory()) {
    {
      const auto store = open_store(temp_, journal_);
      for (size_t i = 0; i < old_records().size(); ++i) {
        REQUIRE(store->put(old_key(i), old_records()[i]));
      }
    }
    good_ = test::read_file(temp_.database());
  }

  /// One run with faults and one without after it. False: the first met no fault.
  bool run(FaultVfs& vfs, FaultKind kind, int64_t nth, Duration duration, FaultRow& row) {
    restore();
    vfs.arm(kind, nth, duration);
    const Outcome outcome = use_faulty(row);
    vfs.disarm();
    row.times += vfs.injected();
    row.evicted += outcome.evicted;
    row.lost += missing_after(outcome, row, is_silent(kind)) - outcome.evicted;
    return vfs.injected() > 0;
  }

 private:
  struct Outcome {
    bool stored = false;  ///< the new record, by what the store said
    int64_t evicted = 0;
  };

  void restore() {
    for (const auto& entry : std::filesystem::directory_iterator(temp_.path())) {
      std::filesystem::remove(entry.path());
    }
    test::write_file(temp_.database(), good_);
    std::filesystem::permissions(temp_.database(), std::filesystem::perms(0600));
  }

  /// What a process does.
  Outcome use_faulty(FaultRow& row) {
    const auto store = open_store(temp_, journal_);
    find_old(*store, row);
    const bool stored = store->put(key_of("new"), record_of(9, 30000));
    const auto found = store->find(key_of("new"), "maker-1");
    if (found && !same(*found, record_of(9, 30000))) ++row.wrong;
    find_old(*store, row);
    store->flush();
    return {stored, store->stats().evicted};
  }

  /// Returns how many are not found.
  static int64_t find_old(Store& store, FaultRow& row) {
    int64_t missing = 0;
    for (size_t i = 0; i < old_records().size(); ++i) {
      const auto found = store.find(old_key(i), "maker-1");
      if (!found) {
        ++missing;
      } else if (!same(*found, old_records()[i])) {
        ++row.wrong;
      }
    }
    return missing;
  }

  /// What the next process finds; returns how many records are gone.
  int64_t missing_after(const Outcome& outcome, FaultRow& row, bool silent) {
    const auto store = open_store(temp_, journal_);
    REQUIRE(store->mode() == StoreMode::kReadWrite);
    int64_t missing = find_old(*store, row);
    if (outcome.stored && !store->find(key_of("new"), "maker-1")) ++missing;
    // Wrong bytes that SQLite was given in silence may have found their way back to the disk.
    if (silent) {
      const auto repaired = store->verify(true);
      CAPTURE((repaired ? std::string() : repaired.error().to_string()));
      CHECK(repaired);
    }
    CHECK(store->put(key_of("after"), record_of(5)));
    const auto after = store->find(key_of("after"), "maker-1");
    CHECK((after && same(*after, record_of(5))));
    const auto damaged = store->verify(false);
    CHECK((damaged && damaged->empty()));
    return missing;
  }

  const JournalMode journal_;
  const TempDirectory temp_;
  std::string good_;
};

/// Lets the first operation fail, then the second, until a run meets no fault.
void check_every_operation(const char* group, FaultKind kind, JournalMode journal,
                           Duration duration) {
  FaultRow& row = test::fault_row(
      group, "SQLite: " + std::string(to_string(kind)) +
                 (duration == Duration::kOnce ? " at the Nth operation, N = 1, 2, 3 …"
                                              : " at every operation from the Nth on"));
  const FaultRow before = row;
  FaultVfs vfs;
  Bench bench(journal);
  int64_t nth = 1;
  for (;; ++nth) {
    CAPTURE(std::string(to_string(kind)));
    CAPTURE(nth);
    const int64_t lost = row.lost;
    if (!bench.run(vfs, kind, nth, duration, row)) break;
    REQUIRE(row.wrong == 0);
    // What was refused costs nothing; what was read wrong may have been acted on.
    if (!is_silent(kind)) CHECK(row.lost == lost);
    REQUIRE(nth < 2000);
  }
  MESSAGE(std::string(to_string(kind))
          << ": " << nth - 1 << " operations, " << row.times - before.times << " faults, "
          << row.lost - before.lost << " entries lost");
  CHECK(nth > 5);
}

void check_every_fault(Duration duration) {
  constexpr std::pair<const char*, FaultKind> kFaults[] = {
      {"H", FaultKind::kIoError},   {"H", FaultKind::kTornWrite},   {"I", FaultKind::kFull},
      {"G", FaultKind::kShortRead}, {"G", FaultKind::kFlippedRead}, {"B", FaultKind::kLockBusy},
      {"B", FaultKind::kLockError}, {"B", FaultKind::kProtocol}};
  for (const JournalMode journal : {JournalMode::kWal, JournalMode::kRollback}) {
    for (const auto& [group, kind] : kFaults) {
      check_every_operation(group, kind, journal, duration);
    }
  }
}

TEST_CASE("whatever operation of SQLite fails once, answers are right and nothing is lost") {
  check_every_fault(Duration::kOnce);
}

TEST_CASE("from whatever operation on SQLite fails, answers are right and nothing is lost") {
  check_every_fault(Duration::kForGood);
}

}  // namespace
}  // namespace laya::cache
