#include "cache/salvage.h"

#include "cache/rows.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::key_of;
using test::options_for;
using test::RawDatabase;
using test::record_of;
using test::TempDirectory;

/// A new database with what can be taken from that of `source` within `time`.
class Salvaged {
 public:
  Salvaged(const TempDirectory& source, milliseconds time) {
    auto from = open_read_only(source.database());
    auto to = open_database(temp_.database(), JournalMode::kWal, milliseconds(1000));
    REQUIRE(from);
    REQUIRE(to);
    result_ = salvage(*from, *to, steady_clock::now() + time);
  }
  const Salvage& result() const { return result_; }
  std::unique_ptr<Store> open() const { return Store::open(options_for(temp_)); }
  const TempDirectory& directory() const { return temp_; }

 private:
  const TempDirectory temp_ = TempDirectory::in_memory();
  Salvage result_;
};

void fill(const TempDirectory& directory, int count) {
  const auto store = Store::open(options_for(directory));
  for (int i = 0; i < count; ++i) REQUIRE(store->put(key_of(std::to_string(i)), record_of(1)));
}

TEST_CASE("a salvage that runs out of time saves only records that can be found") {
  const TempDirectory source = TempDirectory::in_memory();
  constexpr int kRecords = 1500;
  fill(source, kRecords);
  int64_t partly = 0;
  for (int time = 1; time <= 64 && partly == 0; time *= 2) {
    const Salvaged salvaged(source, milliseconds(time));
    const int64_t saved = salvaged.result().saved;
    if (saved == 0 || saved == kRecords) continue;
    partly = saved;
    CHECK_FALSE(salvaged.result().complete);
    CHECK(salvaged.result().texts);
    const auto store = salvaged.open();
    CHECK(store->verify(false)->empty());
    int64_t found = 0;
    for (int i = 0; i < kRecords; ++i) {
      found += store->find(key_of(std::to_string(i)), "maker-1").has_value();
    }
    CHECK(found == saved);
    // What was used last comes first.
    CHECK(store->find(key_of(std::to_string(kRecords - 1)), "maker-1"));
    CHECK_FALSE(store->find(key_of("0"), "maker-1"));
  }
  CHECK(partly > 0);
}

TEST_CASE("recency numbers that damage has made senseless are not saved") {
  const TempDirectory source;
  fill(source, 3);
  RawDatabase(source.database())
      .execute(
          "UPDATE usage SET used = used + (1 << 61) WHERE used = 1;"
          "UPDATE usage SET used = -7 WHERE used = 2");
  const Salvaged salvaged(source, milliseconds(60'000));
  CHECK(salvaged.result().saved == 3);
  CHECK(salvaged.result().complete);
  RawDatabase raw(salvaged.directory().database());
  CHECK(raw.integer("SELECT max(used) FROM usage") == 3);
  CHECK(raw.integer("SELECT min(used) FROM usage") == 0);
}

}  // namespace
}  // namespace laya::cache
