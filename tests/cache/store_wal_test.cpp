// Damage to the write-ahead log and to its index in shared memory.
#include <algorithm>

#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::FaultRow;
using test::key_of;
using test::options_for;
using test::RawDatabase;
using test::record_of;
using test::same;
using test::TempDirectory;

constexpr uint32_t kRecords = 4;

Key sample_key(uint32_t i) {
  return key_of("k" + std::to_string(i));
}

/// What a killed process leaves: a database without records, and a log that has them.
struct Leftovers {
  TempDirectory temp = TempDirectory::in_memory();
  std::string database, wal;

  Leftovers() {
    const auto store = Store::open(options_for(temp));
    for (uint32_t i = 0; i < kRecords; ++i) {
      REQUIRE(store->put(sample_key(i), record_of(i, 9000)));
    }
    database = test::read_file(temp.database());
    wal = test::read_file(temp.database().string() + "-wal");
  }

  bool has_wal() const {
    if (journal_mode_of(temp.path()) == JournalMode::kWal) return true;
    MESSAGE("[SKIP] no write-ahead log on this file system");
    return false;
  }

  /// Opens a store over the database with `bad` for its log and `shm` for its index.
  void try_log(const std::string& bad, const std::string& shm, FaultRow& row) const {
    test::write_file(temp.database(), database);
    test::write_file(temp.database().string() + "-wal", bad);
    test::write_file(temp.database().string() + "-shm", shm);
    ++row.times;
    const auto store = Store::open(options_for(temp));
    REQUIRE(store->mode() == StoreMode::kReadWrite);
    uint32_t found_until = kRecords;
    for (uint32_t i = 0; i < kRecords; ++i) {
      const auto found = store->find(sample_key(i), "maker-1");
      if (found && !same(*found, record_of(i, 9000))) ++row.wrong;
      if (!found) ++row.lost;
      if (!found) found_until = std::min(found_until, i);
      CHECK((!found || i < found_until));  // The log counts up to the damage, and no further.
    }
    CHECK(store->put(key_of("new"), record_of(9)));
    CHECK(store->find(key_of("new"), "maker-1"));
    const auto damaged = store->verify(false);
    CHECK((damaged && damaged->empty()));
  }
};

TEST_CASE("a write-ahead log damaged anywhere counts up to the damage") {
  const Leftovers left;
  if (!left.has_wal()) return;
  REQUIRE(left.wal.size() > 100000);
  FaultRow& row = test::fault_row("G", "write-ahead log: bit flipped");
  for (size_t at = 0; at < left.wal.size(); at += at < 64 ? 4 : 2003) {
    CAPTURE(at);
    std::string bad = left.wal;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    left.try_log(bad, "", row);
  }
  CHECK(row.wrong == 0);
  CHECK(row.lost < row.times * kRecords);
}

TEST_CASE("a write-ahead log that is cut off anywhere counts up to the cut") {
  const Leftovers left;
  if (!left.has_wal()) return;
  FaultRow& row = test::fault_row("G", "write-ahead log: truncated");
  for (size_t bytes = 0; bytes < left.wal.size(); bytes += bytes < 64 ? 7 : 5003) {
    CAPTURE(bytes);
    left.try_log(left.wal.substr(0, bytes), "", row);
  }
  CHECK(row.wrong == 0);
}

TEST_CASE("an index of the log that a dead process left is not believed") {
  const Leftovers left;
  if (!left.has_wal()) return;
  FaultRow& row = test::fault_row("G", "index of the log: noise left behind");
  for (const size_t bytes : {1, 136, 32768, 65536}) {
    for (uint32_t seed = 0; seed < 5; ++seed) {
      left.try_log(left.wal, test::bytes_of(bytes, seed), row);
    }
  }
  CHECK(row.wrong == 0);
  CHECK(row.lost == 0);
}

TEST_CASE("noise in the index of the log that others are using gives no wrong answer") {
  const Leftovers left;
  if (!left.has_wal()) return;
  FaultRow& row = test::fault_row("G", "index of the log: bit flipped while in use");
  const std::string shm = left.temp.database().string() + "-shm";
  for (size_t at = 0; at < 32768; at += at < 136 ? 5 : 601) {
    CAPTURE(at);
    test::write_file(left.temp.database(), left.database);
    test::write_file(left.temp.database().string() + "-wal", left.wal);
    std::filesystem::remove(shm);
    {
      RawDatabase user(left.temp.database());
      REQUIRE(user.integer("SELECT count(*) FROM artifacts") == kRecords);
      // In a child: closing a file would drop the locks that this process holds on it.
      REQUIRE(test::in_child([&] {
                const std::string bytes = test::read_file(shm);
                test::patch_file(shm, at, std::string(1, static_cast<char>(bytes[at] ^ 0x04)));
                return 0;
              }) == 0);
      ++row.times;
      const auto store = Store::open(options_for(left.temp));
      for (uint32_t i = 0; i < kRecords; ++i) {
        const auto found = store->find(sample_key(i), "maker-1");
        if (found && !same(*found, record_of(i, 9000))) ++row.wrong;
      }
    }
    // Whoever comes when all are gone makes the index anew.
    const auto store = Store::open(options_for(left.temp));
    REQUIRE(store->mode() == StoreMode::kReadWrite);
    for (uint32_t i = 0; i < kRecords; ++i) {
      const auto found = store->find(sample_key(i), "maker-1");
      if (!found) ++row.lost;
      if (found && !same(*found, record_of(i, 9000))) ++row.wrong;
    }
    CHECK(store->put(key_of("new"), record_of(9)));
    CHECK(store->find(key_of("new"), "maker-1"));
  }
  CHECK(row.wrong == 0);
}

}  // namespace
}  // namespace laya::cache
