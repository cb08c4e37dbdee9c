// What people see of a store: list, show, verify, clear.
#include <algorithm>

#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::key_of;
using test::options_for;
using test::RawDatabase;
using test::record_of;
using test::TempDirectory;

TEST_CASE("list shows every record, the most recently used first") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  CHECK(store->list()->empty());
  for (uint32_t i = 0; i < 3; ++i) {
    REQUIRE(store->put(key_of("k" + std::to_string(i)), record_of(i, 5000 + i)));
  }
  CHECK(store->find(key_of("k1"), "maker-1"));
  const auto entries = store->list();
  REQUIRE(entries);
  REQUIRE(entries->size() == 3);
  const EntryInfo& first = entries->front();
  CHECK(first.digest == key_of("k1").digest.hex());
  CHECK(first.producer == "maker-1");
  CHECK(first.metadata == "registers=1");
  CHECK(first.artifact_bytes == 5001);
  CHECK(first.stored_bytes > 5001);
  CHECK(first.stored_bytes < 5001 + 1000);
  CHECK(first.hits == 1);
  CHECK(first.created_at > 1600000000);
  CHECK(first.key.empty());
  CHECK((*entries)[1].digest == key_of("k2").digest.hex());
  CHECK((*entries)[2].digest == key_of("k0").digest.hex());
}

TEST_CASE("show finds records by the beginning of the digest, with their key fields") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  for (uint32_t i = 0; i < 30; ++i) {
    REQUIRE(store->put(key_of("k" + std::to_string(i)), record_of(i, 10)));
  }
  const std::string digest = key_of("k7").digest.hex();
  for (const size_t length : {4, 5, 31, 32}) {
    CAPTURE(length);
    const auto shown = store->show(digest.substr(0, length));
    REQUIRE(shown);
    REQUIRE(shown->size() == 1);
    CHECK(shown->front().digest == digest);
    CHECK(shown->front().key == *parse_key(key_of("k7").text));
  }
  CHECK(store->show("ffffffffffffffffffffffffffffffff")->empty());
}

TEST_CASE("show refuses what is no beginning of a digest") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  for (const std::string prefix :
       {"", "abc", "xyz1", "ABCD", "123456789012345678901234567890123"}) {
    CAPTURE(prefix);
    const auto shown = store->show(prefix);
    REQUIRE_FALSE(shown);
    CHECK(shown.error().kind == ErrorKind::kBadInput);
  }
}

TEST_CASE("verify finds every damaged record and removes it only if told") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  for (uint32_t i = 0; i < 4; ++i) {
    REQUIRE(store->put(key_of("k" + std::to_string(i)), record_of(i)));
  }
  CHECK(store->verify(false)->empty());
  RawDatabase(temp.database())
      .execute("UPDATE artifacts SET metadata = x'' WHERE id IN (" + test::id_of("k1") + ", " +
               test::id_of("k2") + ")");
  std::vector<std::string> expected = {key_of("k1").digest.hex(), key_of("k2").digest.hex()};
  std::sort(expected.begin(), expected.end());
  CHECK(*store->verify(false) == expected);
  CHECK(*store->verify(true) == expected);
  CHECK(store->verify(false)->empty());
  CHECK(store->list()->size() == 2);
  CHECK(store->find(key_of("k0"), "maker-1"));
  CHECK(*store->stored_bytes() == test::recounted_bytes(temp));
}

TEST_CASE("show says that a record is damaged") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  RawDatabase(temp.database()).execute("UPDATE artifacts SET checksum = x''");
  const auto shown = store->show(key_of("k").digest.hex());
  REQUIRE_FALSE(shown);
  CHECK(shown.error().message.find("damaged") != std::string::npos);
}

TEST_CASE("verify mends counts that no longer agree") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  for (uint32_t i = 0; i < 3; ++i) {
    REQUIRE(store->put(key_of("k" + std::to_string(i)), record_of(i)));
  }
  const int64_t bytes = *store->stored_bytes();
  RawDatabase(temp.database())
      .execute(
          "DELETE FROM usage WHERE used = 1; INSERT INTO usage VALUES(77, 1, 1, 12345);"
          "INSERT INTO texts VALUES(x'00', 3, x'616263'); UPDATE totals SET bytes = 5");
  CHECK(store->verify(true)->empty());
  CHECK(*store->stored_bytes() == bytes);
  CHECK(store->list()->size() == 3);
  CHECK(RawDatabase(temp.database()).integer("SELECT count(*) FROM usage") == 3);
}

TEST_CASE("a lost total is mended by the next put, without losing records") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  // What bit rot can do and a constraint would prevent.
  RawDatabase(temp.database())
      .execute(
          "PRAGMA writable_schema = ON;"
          "UPDATE sqlite_schema SET sql = replace(sql, 'bytes INTEGER NOT NULL)', 'bytes INTEGER)')"
          " WHERE name = 'totals'");
  RawDatabase(temp.database()).execute("UPDATE totals SET bytes = NULL");
  RawDatabase(temp.database())
      .execute(
          "PRAGMA writable_schema = ON;"
          "UPDATE sqlite_schema SET sql = replace(sql, 'bytes INTEGER)', 'bytes INTEGER NOT NULL)')"
          " WHERE name = 'totals'");
  const auto next = Store::open(options_for(temp));
  CHECK(next->put(key_of("l"), record_of(2)));
  CHECK(next->find(key_of("k"), "maker-1"));
  CHECK(next->find(key_of("l"), "maker-1"));
  CHECK(next->stats().damaged == 1);
  CHECK(*next->stored_bytes() == test::recounted_bytes(temp));
}

TEST_CASE("clear removes every record and gives the space back") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  for (uint32_t i = 0; i < 20; ++i) {
    REQUIRE(store->put(key_of("k" + std::to_string(i)), record_of(i, 50000)));
  }
  const auto cleared = store->clear();
  REQUIRE(cleared);
  CHECK(*cleared == 20);
  CHECK(*store->clear() == 0);
  CHECK(store->list()->empty());
  CHECK(*store->stored_bytes() == 0);
  CHECK(std::filesystem::file_size(temp.database()) < 300000);
  CHECK(store->put(key_of("k"), record_of(1)));
  CHECK(store->find(key_of("k"), "maker-1"));
}

TEST_CASE("chosen records are removed and the space is given back") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  for (uint32_t i = 0; i < 20; ++i) {
    REQUIRE(store->put(key_of(std::to_string(i)), record_of(i, 50'000)));
  }
  auto entries = *store->list();
  entries.resize(15);
  CHECK(*store->remove(entries) == 15);
  CHECK(*store->remove(entries) == 0);
  CHECK(store->list()->size() == 5);
  CHECK(store->verify(false)->empty());
  CHECK(std::filesystem::file_size(temp.database()) < 500'000);  // It was above a million.
}

TEST_CASE("shrinking removes what was used least recently") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  for (uint32_t i = 0; i < 200; ++i) REQUIRE(store->put(key_of(std::to_string(i)), record_of(i)));
  REQUIRE(store->find(key_of("7"), "maker-1"));
  const int64_t each = *store->stored_bytes() / 200;
  CHECK(*store->shrink(10 * each + each / 2) == 190);
  CHECK(store->find(key_of("7"), "maker-1"));
  CHECK(store->find(key_of("199"), "maker-1"));
  CHECK_FALSE(store->find(key_of("100"), "maker-1"));
  CHECK(*store->shrink(int64_t{1} << 40) == 0);
  CHECK(*store->shrink(0) == 10);
}

}  // namespace
}  // namespace laya::cache
