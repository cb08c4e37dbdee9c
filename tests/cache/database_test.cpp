// Opening the database file: both journals, many openers at once, and putting a damaged one aside.
#include "cache/database.h"

#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "cache/file_lock.h"
#include "cache/rows.h"
#include "tests/cache/fault_vfs.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using std::chrono::seconds;
using test::RawDatabase;
using test::TempDirectory;

TEST_CASE("the name of the file carries the format version, and so does the file") {
  const TempDirectory temp;
  CHECK(database_file("/d") == "/d/kernels-v4.sqlite");
  REQUIRE(open_database(temp.database(), JournalMode::kWal, seconds(5)));
  RawDatabase raw(temp.database());
  CHECK(raw.integer("PRAGMA user_version") == 4);
  CHECK(raw.integer("PRAGMA application_id") == 0x4c617961);
}

TEST_CASE("each journal mode is what the database is in afterwards, whatever it was in before") {
  const TempDirectory temp;
  for (const JournalMode journal : {JournalMode::kWal, JournalMode::kRollback, JournalMode::kWal}) {
    const bool wal = journal == JournalMode::kWal;
    auto connection = open_database(temp.database(), journal, seconds(5));
    REQUIRE(connection);
    CHECK(*connection->text("PRAGMA journal_mode") == (wal ? "wal" : "delete"));
    CHECK(*connection->integer("PRAGMA synchronous") == (wal ? 1 : 2));
    // The lock of exclusive locking, which the change needs, is given back.
    RawDatabase(temp.database()).execute("UPDATE totals SET bytes = bytes");
    CHECK(std::filesystem::exists(temp.database().string() + "-wal") == wal);
  }
}

TEST_CASE("with the rollback journal no shared memory file is ever made") {
  const TempDirectory temp;
  auto connection = open_database(temp.database(), JournalMode::kRollback, seconds(5));
  REQUIRE(connection);
  REQUIRE(total_bytes(*connection));
  CHECK_FALSE(std::filesystem::exists(temp.database().string() + "-shm"));
  CHECK_FALSE(std::filesystem::exists(temp.database().string() + "-wal"));
}

TEST_CASE("many threads and connections may open a new database at once") {
  for (const JournalMode journal : {JournalMode::kWal, JournalMode::kRollback}) {
    const TempDirectory temp = TempDirectory::in_memory();
    std::vector<std::thread> threads;
    std::atomic<int> opened{0};
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&] {
        auto connection = open_database(temp.database(), journal, seconds(60));
        if (connection && total_bytes(*connection)) ++opened;
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(opened == 6);
  }
}

TEST_CASE("an opener waits for its turn, but not for ever") {
  const TempDirectory temp;
  const auto lock = FileLock::acquire(temp.database().string() + ".lock", seconds(0));
  REQUIRE(lock);
  const auto connection =
      open_database(temp.database(), JournalMode::kWal, std::chrono::milliseconds(5));
  REQUIRE_FALSE(connection);
  CHECK(connection.error().fault == Fault::kBusy);
}

TEST_CASE("a file that is made empty by a killed process becomes a database") {
  const TempDirectory temp;
  test::write_file(temp.database(), "");
  REQUIRE(::chmod(temp.database().c_str(), 0600) == 0);
  CHECK(open_database(temp.database(), JournalMode::kWal, seconds(5)));
}

TEST_CASE("a schema that is not ours under our identity counts as damage") {
  const TempDirectory temp;
  REQUIRE(open_database(temp.database(), JournalMode::kWal, seconds(5)));
  RawDatabase(temp.database()).execute("ALTER TABLE totals RENAME TO other");
  const auto connection = open_database(temp.database(), JournalMode::kWal, seconds(5));
  REQUIRE_FALSE(connection);
  CHECK(connection.error().fault == Fault::kDamaged);
}

Attempt<std::optional<Replacement>> replace(const TempDirectory& temp, FileIdentity identity) {
  return replace_damaged(temp.database(), identity, JournalMode::kWal, seconds(5));
}

TEST_CASE("only the file that was seen to be damaged is replaced, and only once") {
  const TempDirectory temp;
  test::write_file(temp.database(), "damaged");
  test::write_file(temp.database().string() + "-wal", "its log");
  test::write_file(temp.database().string() + "-shm", "its index");
  const FileIdentity damaged = identity_of(temp.database());
  REQUIRE(damaged.inode != 0);
  {
    auto replaced = replace(temp, damaged);
    REQUIRE(replaced);
    REQUIRE(*replaced);
    CHECK((*replaced)->saved == 0);
    CHECK(*total_bytes((*replaced)->connection) == 0);
  }
  CHECK(test::read_file(damaged_file(temp.database())) == "damaged");
  CHECK(test::read_file(damaged_file(temp.database()).string() + "-wal") == "its log");
  CHECK_FALSE(std::filesystem::exists(damaged_file(temp.database()).string() + "-shm"));
  CHECK_FALSE(*replace(temp, damaged));
  CHECK(open_database(temp.database(), JournalMode::kWal, seconds(5)));
  remove_damaged(temp.database());
  CHECK_FALSE(std::filesystem::exists(damaged_file(temp.database())));
  CHECK_FALSE(std::filesystem::exists(damaged_file(temp.database()).string() + "-wal"));
}

TEST_CASE("saved records are evicted in the order in which they were used") {
  const TempDirectory temp;
  {
    const auto store = Store::open(test::options_for(temp));
    for (const char* name : {"a", "b", "c", "d"}) {
      REQUIRE(store->put(test::key_of(name), test::record_of(1)));
    }
    CHECK(store->find(test::key_of("a"), "maker-1"));
    CHECK(store->list());  // Counts the use.
  }
  {
    auto replaced = replace(temp, identity_of(temp.database()));
    REQUIRE(*replaced);
    CHECK((*replaced)->saved == 4);
    CHECK((*replaced)->connection.integer("SELECT max(used) FROM usage") == 5);
  }
  const auto store = Store::open(test::options_for(temp));
  REQUIRE(store->put(test::key_of("e"), test::record_of(1)));
  std::string order;
  const auto entries = *store->list();
  for (const EntryInfo& entry : entries) {
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      if (entry.digest == test::key_of(name).digest.hex()) order += name;
    }
  }
  CHECK(order == "eadcb");
}

TEST_CASE("one damaged database is kept, not a growing number") {
  const TempDirectory temp;
  for (const std::string content : {"first", "second"}) {
    test::write_file(temp.database(), content);
    CHECK(*replace(temp, identity_of(temp.database())));
    CHECK(test::read_file(damaged_file(temp.database())) == content);
  }
}

TEST_CASE("where no new database can be made, the damaged one stays in its place") {
  const TempDirectory temp;
  test::write_file(temp.database(), "damaged");
  test::write_file(temp.database().string() + "-wal", "its log");
  const FileIdentity damaged = identity_of(temp.database());
  {
    test::FaultVfs vfs;
    vfs.arm(test::FaultKind::kFull, 1, test::Duration::kForGood);
    const auto replaced = replace(temp, damaged);
    REQUIRE_FALSE(replaced);
    CHECK(replaced.error().fault == Fault::kFull);
    CHECK(vfs.injected() > 0);
  }
  CHECK(identity_of(temp.database()) == damaged);
  CHECK(test::read_file(temp.database()) == "damaged");
  CHECK(test::read_file(temp.database().string() + "-wal") == "its log");
  CHECK_FALSE(std::filesystem::exists(damaged_file(temp.database())));
}

TEST_CASE("read-only opening changes nothing and makes nothing") {
  const TempDirectory temp;
  CHECK_FALSE(open_read_only(temp.database()));
  {
    auto connection = open_database(temp.database(), JournalMode::kWal, seconds(5));
    REQUIRE(connection);
    connection->checkpoint_on_close(true);
  }
  const std::string before = test::read_file(temp.database());
  auto connection = open_read_only(temp.database());
  REQUIRE(connection);
  CHECK(*total_bytes(*connection) == 0);
  CHECK(connection->is_read_only());
  CHECK(test::read_file(temp.database()) == before);
  CHECK_FALSE(std::filesystem::exists(temp.database().string() + "-wal"));
}

}  // namespace
}  // namespace laya::cache
