// Other processes that hold locks: waiting is bounded, busy is a miss and never a reason to delete.
#include <optional>
#include <thread>

#include "cache/file_lock.h"
#include "cache/sqlite_store.h"
#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using std::chrono::milliseconds;
using test::key_of;
using test::Log;
using test::options_for;
using test::RawDatabase;
using test::record_of;
using test::TempDirectory;

StoreOptions impatient(const TempDirectory& temp, Log& log) {
  StoreOptions options = options_for(temp, &log);
  options.busy_timeout = milliseconds(20);
  return options;
}

TEST_CASE("a writer that keeps the lock costs a put, not a hit and not the data") {
  const TempDirectory temp;
  Log log;
  const auto store = Store::open(impatient(temp, log));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  RawDatabase writer(temp.database());
  writer.execute("BEGIN EXCLUSIVE");
  CHECK_FALSE(store->put(key_of("l"), record_of(2)));
  CHECK_FALSE(store->put(key_of("m"), record_of(3)));
  CHECK(store->stats().busy == 2);
  CHECK(store->stats().damaged == 0);
  CHECK(log.lines().size() == 1);
  if (journal_mode_of(temp.path()) == JournalMode::kWal) {
    CHECK(store->find(key_of("k"), "maker-1"));
  }
  writer.execute("ROLLBACK");
  CHECK(store->put(key_of("l"), record_of(2)));
  CHECK(store->list()->size() == 2);
  CHECK_FALSE(std::filesystem::exists(damaged_file(temp.database())));
  test::fault_row("B", "writer that holds its lock for longer than the timeout").times += 2;
}

TEST_CASE("with the rollback journal a busy find is a miss that is counted") {
  const TempDirectory temp;
  Log log;
  SqliteStore store(impatient(temp, log),
                    {temp.database(), JournalMode::kRollback, StoreMode::kReadWrite, ""});
  REQUIRE(store.connect());
  REQUIRE(store.put(key_of("k"), record_of(1)));
  {
    RawDatabase writer(temp.database());
    CHECK(writer.text("PRAGMA journal_mode") == "delete");
    writer.execute("BEGIN EXCLUSIVE");
    CHECK_FALSE(store.find(key_of("k"), "maker-1"));
    CHECK(store.stats().busy == 1);
    CHECK(store.stats().misses == 1);
    CHECK_FALSE(store.list());
    CHECK(store.list().error().kind == ErrorKind::kStoreError);
  }
  CHECK(store.find(key_of("k"), "maker-1"));
  CHECK(store.stats().damaged == 0);
  test::fault_row("B", "writer that holds its lock, rollback journal").times += 1;
}

TEST_CASE("a lock that is released in time is waited for") {
  const TempDirectory temp;
  StoreOptions options = options_for(temp);
  options.busy_timeout = std::chrono::seconds(20);
  const auto store = Store::open(options);
  RawDatabase writer(temp.database());
  writer.execute("BEGIN EXCLUSIVE");
  std::thread release([&] {
    std::this_thread::sleep_for(milliseconds(30));
    writer.execute("COMMIT");
  });
  CHECK(store->put(key_of("k"), record_of(1)));
  release.join();
  CHECK(store->stats().busy == 0);
}

TEST_CASE("a put that waits keeps no other thread from its hits") {
  const TempDirectory temp;
  if (journal_mode_of(temp.path()) != JournalMode::kWal) {
    MESSAGE("[SKIP] readers wait for writers on this file system");
    return;
  }
  StoreOptions options = options_for(temp);
  options.busy_timeout = std::chrono::seconds(20);
  const auto store = Store::open(options);
  REQUIRE(store->put(key_of("k"), record_of(1)));
  RawDatabase writer(temp.database());
  writer.execute("BEGIN EXCLUSIVE");
  std::thread waiting([&] { CHECK(store->put(key_of("l"), record_of(2))); });
  // The lock is released only after these hits: a put that blocked them would end by its timeout.
  for (int i = 0; i < 100; ++i) CHECK(store->find(key_of("k"), "maker-1"));
  writer.execute("COMMIT");
  waiting.join();
}

TEST_CASE("a store that is opened while another process makes it works as soon as it can") {
  const TempDirectory temp;
  std::optional<FileLock> lock =
      *FileLock::acquire(temp.database().string() + ".lock", milliseconds(0));
  Log log;
  const auto store = Store::open(impatient(temp, log));
  CHECK(store->mode() == StoreMode::kReadWrite);
  CHECK_FALSE(store->find(key_of("k"), "maker-1"));
  CHECK_FALSE(store->put(key_of("k"), record_of(1)));
  CHECK(store->stats().busy == 2);
  lock.reset();
  CHECK(store->put(key_of("k"), record_of(1)));
  CHECK(store->find(key_of("k"), "maker-1"));
}

}  // namespace
}  // namespace laya::cache
