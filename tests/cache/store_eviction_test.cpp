// The size cap: what goes first, how far down, and that hits count without being written one by
// one.
#include <thread>

#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::key_of;
using test::options_for;
using test::RawDatabase;
using test::record_of;
using test::TempDirectory;

std::string name_of(int i) {
  return "k" + std::to_string(i);
}

/// Room for ten records of record_of().
StoreOptions small_options(const TempDirectory& temp) {
  StoreOptions options = options_for(temp);
  const TempDirectory other;
  const auto store = Store::open(options_for(other));
  REQUIRE(store->put(key_of(name_of(0)), record_of(0)));
  options.max_bytes = 10 * *store->stored_bytes() + 100;
  return options;
}

bool has(Store& store, int i) {
  return store.find(key_of(name_of(i)), "maker-1").has_value();
}

TEST_CASE("over the cap the least recently used records go, down to nine tenths") {
  const TempDirectory temp;
  const auto store = Store::open(small_options(temp));
  for (int i = 0; i < 10; ++i) REQUIRE(store->put(key_of(name_of(i)), record_of(0)));
  CHECK(store->stats().evicted == 0);
  CHECK(has(*store, 0));
  CHECK(has(*store, 1));
  REQUIRE(store->put(key_of(name_of(10)), record_of(0)));
  CHECK(store->stats().evicted == 2);
  CHECK(*store->stored_bytes() <= store->options().max_bytes * 9 / 10);
  for (int i = 0; i <= 10; ++i) {
    CAPTURE(i);
    CHECK(has(*store, i) == (i != 2 && i != 3));
  }
}

TEST_CASE("hits of an earlier process count") {
  const TempDirectory temp;
  const StoreOptions options = small_options(temp);
  {
    const auto store = Store::open(options);
    for (int i = 0; i < 10; ++i) REQUIRE(store->put(key_of(name_of(i)), record_of(0)));
  }
  for (const int i : {3, 0, 1}) CHECK(has(*Store::open(options), i));
  const auto store = Store::open(options);
  REQUIRE(store->put(key_of(name_of(10)), record_of(0)));
  CHECK(has(*store, 0));
  CHECK_FALSE(has(*store, 2));
  CHECK(has(*store, 3));
  CHECK_FALSE(has(*store, 4));
}

TEST_CASE("a record of almost the whole cap pushes out all others and stays") {
  const TempDirectory temp;
  const auto store = Store::open(small_options(temp));
  for (int i = 0; i < 5; ++i) REQUIRE(store->put(key_of(name_of(i)), record_of(0)));
  const auto size = static_cast<size_t>(store->options().max_bytes * 95 / 100);
  REQUIRE(store->put(key_of("large"), record_of(1, size)));
  CHECK(store->find(key_of("large"), "maker-1"));
  CHECK(store->list()->size() == 1);
  CHECK(store->stats().evicted == 5);
}

TEST_CASE("a lowered cap is reached with the next put, however many records have to go") {
  const TempDirectory temp = TempDirectory::in_memory();
  StoreOptions options = options_for(temp);
  {
    const auto store = Store::open(options);
    for (int i = 0; i < 300; ++i) REQUIRE(store->put(key_of(name_of(i)), record_of(0, 500)));
  }
  options.max_bytes = 20000;
  const auto store = Store::open(options);
  REQUIRE(store->put(key_of("new"), record_of(0, 500)));
  CHECK(*store->stored_bytes() <= 18000);
  CHECK(store->find(key_of("new"), "maker-1"));
  CHECK(has(*store, 299));
  CHECK_FALSE(has(*store, 0));
}

TEST_CASE("a hit writes nothing until flush, and then counts once") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(0)));
  RawDatabase raw(temp.database());
  const int64_t version = raw.integer("PRAGMA data_version");
  for (int i = 0; i < 100; ++i) CHECK(store->find(key_of("k"), "maker-1"));
  CHECK(raw.integer("PRAGMA data_version") == version);
  CHECK(raw.integer("SELECT hits FROM usage") == 0);
  store->flush();
  CHECK(raw.integer("SELECT length(ids) FROM recent") == 800);
  store->flush();
  CHECK(raw.integer("SELECT count(*) FROM recent") == 1);
  CHECK(store->list()->front().hits == 100);
  CHECK(raw.integer("SELECT count(*) FROM recent") == 0);
  CHECK(store->list()->front().hits == 100);
}

TEST_CASE("what processes that only read have used counts when the next one stores") {
  const TempDirectory temp;
  const StoreOptions options = small_options(temp);
  for (int i = 0; i < 10; ++i) REQUIRE(Store::open(options)->put(key_of(name_of(i)), record_of(0)));
  // Many of them, so that what they leave behind has to be counted in between.
  for (int process = 0; process < 100; ++process) {
    const auto reader = Store::open(options);
    CHECK(has(*reader, 0));
    CHECK(has(*reader, 1));
  }
  RawDatabase raw(temp.database());
  CHECK(raw.integer("SELECT count(*) FROM recent") > 0);
  CHECK(raw.integer("SELECT count(*) FROM recent") <= 32);
  const auto store = Store::open(options);
  REQUIRE(store->put(key_of(name_of(10)), record_of(0)));
  CHECK(raw.integer("SELECT count(*) FROM recent") == 0);
  CHECK(raw.integer("SELECT hits FROM usage WHERE id = " + test::id_of(name_of(0))) == 100);
  CHECK(raw.integer("SELECT hits FROM usage WHERE id = " + test::id_of(name_of(1))) == 100);
  CHECK(has(*store, 0));
  CHECK(has(*store, 1));
  CHECK_FALSE(has(*store, 2));
}

TEST_CASE("uses that damage has made senseless count for nothing and harm nothing") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(0)));
  RawDatabase raw(temp.database());
  for (const char* ids : {"(x'ffffffffffffffff00')", "(x''), (x'0102')"}) {
    raw.execute(std::string("INSERT INTO recent VALUES") + ids);
    REQUIRE(store->put(key_of(ids), record_of(0)));
    CHECK(raw.integer("SELECT count(*) FROM recent") == 0);
  }
  CHECK(raw.integer("SELECT sum(hits) FROM usage") == 0);
  CHECK(store->stats().errors + store->stats().damaged == 0);
}

TEST_CASE("many hits are written down even if nobody flushes") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(0, 10)));
  for (int i = 0; i < 600; ++i) CHECK(store->find(key_of("k"), "maker-1"));
  CHECK(RawDatabase(temp.database()).integer("SELECT length(ids) / 8 FROM recent") >= 500);
}

TEST_CASE("recency is no time: records from the future neither stay nor break anything") {
  const TempDirectory temp;
  const StoreOptions options = small_options(temp);
  const auto store = Store::open(options);
  for (int i = 0; i < 10; ++i) REQUIRE(store->put(key_of(name_of(i)), record_of(0)));
  RawDatabase(temp.database())
      .execute(
          "UPDATE artifacts SET created_at = iif((SELECT used FROM usage "
          "WHERE usage.id = artifacts.id) <= 5, 99999999999, -5)");
  CHECK(has(*store, 9));
  REQUIRE(store->put(key_of(name_of(10)), record_of(0)));
  CHECK_FALSE(has(*store, 0));
  CHECK_FALSE(has(*store, 1));
  CHECK(has(*store, 9));
  test::fault_row("L", "times of records in the future or before 1970").times += 11;
}

TEST_CASE("a recency number that damage has made huge does not use up all numbers") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("a"), record_of(0)));
  RawDatabase raw(temp.database());
  raw.execute("UPDATE usage SET used = 9223372036854775807");
  CHECK(store->put(key_of("b"), record_of(0)));
  CHECK(store->put(key_of("c"), record_of(0)));
  CHECK(store->find(key_of("b"), "maker-1"));
  store->flush();
  CHECK(store->stats().errors + store->stats().damaged == 0);
  CHECK(raw.integer("SELECT count(DISTINCT used) FROM usage") == 3);
}

TEST_CASE("readers lose nothing while records are evicted under them") {
  const TempDirectory temp = TempDirectory::in_memory();
  StoreOptions options = options_for(temp);
  options.max_bytes = 200000;
  const auto store = Store::open(options);
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    for (uint32_t i = 0; !done; i = (i + 1) % 200) {
      const auto found = store->find(key_of(name_of(static_cast<int>(i))), "maker-1");
      if (found && !test::same(*found, record_of(i))) ++wrong;
    }
  });
  for (uint32_t i = 0; i < 200; ++i) {
    if (!store->put(key_of(name_of(static_cast<int>(i))), record_of(i))) ++wrong;
  }
  done = true;
  reader.join();
  CHECK(wrong == 0);
  CHECK(store->stats().evicted > 100);
  CHECK(*store->stored_bytes() <= options.max_bytes);
  CHECK(*store->stored_bytes() == test::recounted_bytes(temp));
  test::fault_row("I", "eviction under readers").times += 200;
}

}  // namespace
}  // namespace laya::cache
