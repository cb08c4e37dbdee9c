// Damage of every kind, done to real files: a damaged record or database costs a miss and is
// counted, never a wrong answer, and the store works on.
#include <functional>

#include "cache/sqlite_store.h"
#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::key_of;
using test::Log;
using test::options_for;
using test::RawDatabase;
using test::record_of;
using test::same;
using test::TempDirectory;

TEST_CASE("a record with one flipped bit is dropped and counted, the others stay") {
  for (const std::string change :
       {"artifact = CAST(substr(artifact, 1, 2000) || x'00' || substr(artifact, 2002) AS BLOB)",
        "artifact = substr(artifact, 2)", "artifact_bytes = artifact_bytes + 1",
        "own_text = CAST(x'00' || substr(own_text, 2) AS BLOB)", "common = zeroblob(16)",
        "metadata = x'00'", "metadata = x''", "checksum = zeroblob(16)", "checksum = x'01'"}) {
    CAPTURE(change);
    const TempDirectory temp;
    Log log;
    const auto store = Store::open(options_for(temp, &log));
    REQUIRE(store->put(key_of("good"), record_of(1)));
    REQUIRE(store->put(key_of("bad"), record_of(2)));
    RawDatabase(temp.database())
        .execute("UPDATE artifacts SET " + change + " WHERE id = " + test::id_of("bad"));
    CHECK_FALSE(store->find(key_of("bad"), "maker-1"));
    CHECK(store->stats().damaged == 1);
    CHECK(log.count("damaged") == 1);
    // Dropped: now it is an ordinary miss, and can be stored again.
    CHECK_FALSE(store->find(key_of("bad"), "maker-1"));
    CHECK(store->stats().damaged == 1);
    CHECK(store->list()->size() == 1);
    CHECK(same(*store->find(key_of("good"), "maker-1"), record_of(1)));
    REQUIRE(store->put(key_of("bad"), record_of(2)));
    CHECK(same(*store->find(key_of("bad"), "maker-1"), record_of(2)));
  }
  test::FaultRow& row = test::fault_row("G", "field of a record changed");
  row.times += 9;
  row.lost += 9;
}

TEST_CASE("a record under the digest or producer of another one is dropped") {
  for (const std::string column : {"digest", "producer"}) {
    CAPTURE(column);
    const TempDirectory temp;
    const auto store = Store::open(options_for(temp));
    Record theirs = record_of(2);
    theirs.producer = "maker-2";
    REQUIRE(store->put(key_of("mine"), record_of(1)));
    REQUIRE(store->put(key_of("theirs"), theirs));
    const bool digest = column == "digest";
    const char* key = digest ? "mine" : "theirs";
    const char* producer = digest ? "maker-2" : "maker-1";
    RawDatabase raw(temp.database());
    const std::string mine =
        "(SELECT " + column + " FROM artifacts WHERE id = " + test::id_of("mine") + ")";
    raw.execute("UPDATE artifacts SET " + column + " = " + mine + ", id = " +
                test::id_of(key, producer) + " WHERE id = " + test::id_of("theirs", "maker-2"));
    raw.execute("DELETE FROM artifacts WHERE id = " + test::id_of("mine"));
    CHECK_FALSE(store->find(key_of(key), producer));
    CHECK(store->stats().damaged == 1);
    CHECK(store->list()->empty());
  }
}

TEST_CASE("a damaged common text costs one record to be stored anew, not all that share it") {
  for (const std::string change : {"UPDATE texts SET text = CAST(x'00' || substr(text, 2) AS BLOB)",
                                   "UPDATE texts SET bytes = bytes + 1",
                                   "UPDATE texts SET digest = zeroblob(16)", "DELETE FROM texts"}) {
    CAPTURE(change);
    const TempDirectory temp;
    for (uint32_t i = 0; i < 3; ++i) {
      REQUIRE(Store::open(options_for(temp))->put(key_of(std::to_string(i)), record_of(i)));
    }
    RawDatabase(temp.database()).execute(change);
    Log log;
    const auto store = Store::open(options_for(temp, &log));
    CHECK_FALSE(store->find(key_of("0"), "maker-1"));
    CHECK_FALSE(store->find(key_of("1"), "maker-1"));
    CHECK(store->stats().damaged == 2);
    CHECK(log.count("damaged") == 1);
    CHECK(store->verify(false)->size() == 3);
    REQUIRE(store->put(key_of("0"), record_of(0)));
    for (uint32_t i = 0; i < 3; ++i) {
      CHECK(same(*store->find(key_of(std::to_string(i)), "maker-1"), record_of(i)));
    }
    CHECK(store->verify(false)->empty());
  }
  test::FaultRow& row = test::fault_row("G", "common text of several keys changed");
  row.times += 4;
  row.lost += 4;
}

/// Damages the closed database with `damage`; then a store must start a new one, once, with or
/// without the record.
void check_moved_aside(bool saved,
                       const std::function<void(const std::filesystem::path&)>& damage) {
  const TempDirectory temp;
  const Key key = std::move(KeyBuilder().field("name", "k")).finish();  // All its own.
  REQUIRE(Store::open(options_for(temp))->put(key, record_of(1)));
  damage(temp.database());
  const std::string damaged = test::read_file(temp.database());
  Log log;
  const auto store = Store::open(options_for(temp, &log));
  CHECK(store->mode() == StoreMode::kReadWrite);
  const auto found = store->find(key, "maker-1");
  CHECK(found.has_value() == saved);
  if (found) CHECK(same(*found, record_of(1)));
  CHECK(store->put(key, record_of(1)));
  CHECK(same(*store->find(key, "maker-1"), record_of(1)));
  CHECK(store->stats().damaged == 1);
  CHECK(log.count("a new one is started with the " + std::to_string(saved) + " records") == 1);
  CHECK(test::read_file(damaged_file(temp.database())) == damaged);
}

TEST_CASE("a file that is no database, or has the head of none, is moved aside") {
  check_moved_aside(/*saved=*/true,
                    [](const auto& file) { test::patch_file(file, 0, "SQL it is not"); });
  check_moved_aside(/*saved=*/false,
                    [](const auto& file) { test::write_file(file, test::bytes_of(100000, 1)); });
}

TEST_CASE("a truncated database is moved aside and a new one started") {
  check_moved_aside(/*saved=*/true, [](const auto& file) {
    std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  });
  check_moved_aside(/*saved=*/false,
                    [](const auto& file) { std::filesystem::resize_file(file, 100); });
}

TEST_CASE("a database that was truncated to nothing is simply new") {
  const TempDirectory temp;
  REQUIRE(Store::open(options_for(temp))->put(key_of("k"), record_of(1)));
  std::filesystem::resize_file(temp.database(), 0);
  const auto store = Store::open(options_for(temp));
  CHECK_FALSE(store->find(key_of("k"), "maker-1"));
  CHECK(store->put(key_of("k"), record_of(1)));
  CHECK(store->stats().damaged == 0);
}

/// Damages all but the first page of a database that a store has open.
void break_open_database(const std::filesystem::path& file) {
  // Any write makes other connections forget the pages that they know.
  RawDatabase(file).execute("UPDATE totals SET bytes = bytes; PRAGMA wal_checkpoint(TRUNCATE)");
  const size_t size = std::filesystem::file_size(file);
  test::patch_file(file, 16384, std::string(size - 16384, '\x5a'));
}

TEST_CASE("a database that breaks while it is open is moved aside, and the put goes to a new one") {
  const TempDirectory temp;
  Log log;
  const auto store = Store::open(options_for(temp, &log));
  REQUIRE(store->put(key_of("old"), record_of(1)));
  break_open_database(temp.database());
  CHECK(store->put(key_of("new"), record_of(2)));
  CHECK(store->find(key_of("new"), "maker-1"));
  CHECK_FALSE(store->find(key_of("old"), "maker-1"));
  CHECK(store->stats().damaged == 1);
  CHECK(log.count("a new one is started") == 1);
  CHECK(std::filesystem::exists(damaged_file(temp.database())));
  test::FaultRow& row = test::fault_row("G", "database overwritten while it is open");
  row.times += 1;
  row.lost += 1;
}

TEST_CASE("a second broken database in one process is not replaced again") {
  const TempDirectory temp;
  Log log;
  const auto store = Store::open(options_for(temp, &log));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  break_open_database(temp.database());
  CHECK_FALSE(store->find(key_of("k"), "maker-1"));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  break_open_database(temp.database());
  CHECK_FALSE(store->find(key_of("k"), "maker-1"));
  CHECK_FALSE(store->put(key_of("k"), record_of(1)));
  CHECK_FALSE(store->find(key_of("k"), "maker-1"));
  CHECK(log.count("a new one is started") == 1);
  CHECK(store->stats().damaged >= 3);
  // The next process may.
  CHECK(Store::open(options_for(temp))->put(key_of("k"), record_of(1)));
}

TEST_CASE("another process that moved the database aside is noticed") {
  const TempDirectory temp;
  const auto first = Store::open(options_for(temp)), second = Store::open(options_for(temp));
  REQUIRE(first->put(key_of("old"), record_of(1)));
  REQUIRE(second->find(key_of("old"), ""));
  REQUIRE(*replace_damaged(temp.database(), identity_of(temp.database()),
                           journal_mode_of(temp.path()), std::chrono::seconds(1)));
  REQUIRE(first->put(key_of("new"), record_of(2)));
  REQUIRE(second->put(key_of("newer"), record_of(3)));
  CHECK(first->find(key_of("newer"), ""));
  CHECK(second->find(key_of("new"), ""));
}

}  // namespace
}  // namespace laya::cache
