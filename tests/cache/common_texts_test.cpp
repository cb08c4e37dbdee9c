// What completes a key text: read once, checked, forgotten when it becomes too much.
#include "cache/common_texts.h"

#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::key_of;
using test::record_of;
using test::TempDirectory;

/// A database of one record for each of some keys.
class Database {
 public:
  explicit Database(const std::vector<Key>& keys) {
    auto made = create_database(temp_.database());
    REQUIRE(made);
    connection_ = *std::move(made);
    for (const Key& key : keys) {
      const StoredRecord record = encode(key, record_of(1));
      REQUIRE(write_row(connection_, record, key.common(), /*created_at=*/0));
    }
  }

  Connection& connection() { return connection_; }
  std::optional<Row> row(const Key& key) { return *read_row(connection_, key.digest, "maker-1"); }
  std::optional<Entry> entry(CommonTexts& texts, const Key& key) {
    return *texts.complete(connection_, row(key));
  }

 private:
  TempDirectory temp_;
  Connection connection_;
};

Key long_key(int number) {
  KeyBuilder builder;
  builder.field("name", "long").common_from_here().field("number", number);
  builder.field("source", std::string(6 << 20, 's'));
  return std::move(builder).finish();
}

TEST_CASE("a row is completed by the text of its key") {
  const Key key = key_of("a");
  Database database({key});
  CommonTexts texts;
  const auto entry = database.entry(texts, key);
  REQUIRE(entry);
  CHECK(*entry->common == key.common());
  CHECK(entry->is_sound());
  CHECK(entry->has_key_text(key.text));
  CHECK_FALSE(entry->has_key_text(key_of("b").text));
}

TEST_CASE("a text is read once, whatever becomes of it in the file") {
  const Key a = key_of("a"), b = key_of("b");
  Database database({a, b});
  CommonTexts texts;
  REQUIRE(database.entry(texts, a));
  REQUIRE(database.connection().execute("DELETE FROM texts"));
  CHECK(database.entry(texts, b)->has_key_text(b.text));
  CommonTexts others;
  const auto entry = database.entry(others, b);
  REQUIRE(entry);
  CHECK_FALSE(entry->common);
  CHECK_FALSE(entry->is_sound());
  CHECK_FALSE(entry->has_key_text(b.text));
}

TEST_CASE("a row that is gone by the time its text is looked for is no damage") {
  const Key key = key_of("a");
  Database database({key});
  auto row = database.row(key);
  REQUIRE(row);
  REQUIRE(remove_row(database.connection(), row->id));
  CommonTexts texts;
  CHECK_FALSE(*texts.complete(database.connection(), std::move(row)));
}

TEST_CASE("no more than some megabytes of texts are held") {
  std::vector<Key> keys;
  for (int i = 0; i < 3; ++i) keys.push_back(long_key(i));
  Database database(keys);
  CommonTexts texts;
  for (const Key& key : keys) REQUIRE(database.entry(texts, key)->common);
  REQUIRE(database.connection().execute("DELETE FROM texts"));
  CHECK_FALSE(database.entry(texts, keys[0])->common);
  CHECK(database.entry(texts, keys[2])->common);
}

}  // namespace
}  // namespace laya::cache
