// Places that cannot be written: an existing cache is read, nothing else is promised. Root can
// write everywhere, so these tests give root up in a child.
#include <sys/stat.h>

#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::in_child;
using test::key_of;
using test::Log;
using test::options_for;
using test::record_of;
using test::same;
using test::TempDirectory;

constexpr int kNotPossible = 77;

/// Runs `body` as a user who cannot write what is not writable.
template <class Body>
void as_ordinary_user(Body body) {
  const int status = in_child([&] { return test::become_ordinary_user() ? body() : kNotPossible; });
  if (status == kNotPossible) {
    MESSAGE("[SKIP] root cannot be given up here");
    return;
  }
  CHECK(status == 0);
}

/// Makes everything in `temp` readable for all and writable for nobody.
void seal(const TempDirectory& temp) {
  for (const auto& entry : std::filesystem::directory_iterator(temp.path())) {
    REQUIRE(::chmod(entry.path().c_str(), 0444) == 0);
  }
  REQUIRE(::chmod(temp.path().c_str(), 0555) == 0);
}

/// What a store in a sealed directory must do; 0 if it does.
int check_read_only(const TempDirectory& temp) {
  Log log;
  const auto store = Store::open(options_for(temp, &log));
  if (store->mode() != StoreMode::kReadOnly) return 1;
  if (store->reason().find("Permission denied") == std::string::npos) return 2;
  const auto found = store->find(key_of("k"), "maker-1");
  if (!found || !same(*found, record_of(1))) return 3;
  if (store->put(key_of("l"), record_of(2))) return 4;
  store->drop(key_of("k"), "maker-1");
  store->flush();
  if (!store->find(key_of("k"), "")) return 5;
  const auto entries = store->list();
  if (!entries || entries->size() != 1) return 6;
  if (store->clear()) return 7;
  if (!store->verify(false)) return 8;
  // The mode is said once, the refused put once.
  if (log.lines().size() != 2 || log.count(temp.path().string()) != 2) return 9;
  return store->stats().errors >= 1 && store->stats().damaged == 0 ? 0 : 10;
}

TEST_CASE("a cache in a read-only directory is read and not changed") {
  const TempDirectory temp;
  REQUIRE(Store::open(options_for(temp))->put(key_of("k"), record_of(1)));
  seal(temp);
  const std::string before = test::read_file(temp.database());
  as_ordinary_user([&] { return check_read_only(temp); });
  CHECK(test::read_file(temp.database()) == before);
  test::fault_row("A", "read-only directory").times += 1;
}

TEST_CASE("records that are still in the write-ahead log of a living writer are read, too") {
  const TempDirectory temp;
  const auto writer = Store::open(options_for(temp));
  REQUIRE(writer->put(key_of("k"), record_of(1)));
  seal(temp);
  as_ordinary_user([&] { return check_read_only(temp); });
  CHECK(writer->find(key_of("k"), "maker-1"));
  test::fault_row("A", "read-only directory with a living writer").times += 1;
}

TEST_CASE("a read-only database in a writable directory is read and not changed") {
  const TempDirectory temp;
  REQUIRE(Store::open(options_for(temp))->put(key_of("k"), record_of(1)));
  REQUIRE(::chmod(temp.database().c_str(), 0444) == 0);
  if (::geteuid() == 0) REQUIRE(::chown(temp.path().c_str(), 65534, 65534) == 0);
  as_ordinary_user([&] { return check_read_only(temp); });
  test::fault_row("A", "read-only database file").times += 1;
}

TEST_CASE("a damaged record in a read-only cache is a miss that is counted") {
  const TempDirectory temp;
  REQUIRE(Store::open(options_for(temp))->put(key_of("k"), record_of(1)));
  test::RawDatabase(temp.database()).execute("UPDATE artifacts SET metadata = x''");
  test::RawDatabase(temp.database()).execute("PRAGMA wal_checkpoint(TRUNCATE)");
  seal(temp);
  as_ordinary_user([&] {
    const auto store = Store::open(options_for(temp));
    if (store->find(key_of("k"), "maker-1") || store->find(key_of("k"), "")) return 1;
    return store->stats().damaged == 2 ? 0 : 2;
  });
}

TEST_CASE("a damaged database in a read-only directory is no cache, and stays where it is") {
  const TempDirectory temp;
  std::filesystem::create_directories(temp.path());
  test::write_file(temp.database(), test::bytes_of(50000, 1));
  seal(temp);
  as_ordinary_user([&] {
    Log log;
    const auto store = Store::open(options_for(temp, &log));
    if (store->mode() != StoreMode::kMemoryOnly) return 1;
    return log.lines().size() == 1 && log.count("not a database") == 1 ? 0 : 2;
  });
  CHECK(std::filesystem::exists(temp.database()));
  test::fault_row("A", "damaged database in a read-only directory").times += 1;
}

TEST_CASE("a read-only directory without a cache keeps nothing, and says why") {
  const TempDirectory temp;
  seal(temp);
  as_ordinary_user([&] {
    Log log;
    const auto store = Store::open(options_for(temp, &log));
    if (store->mode() != StoreMode::kMemoryOnly) return 1;
    if (store->put(key_of("k"), record_of(1))) return 2;
    return log.lines().size() == 1 && log.count("Permission denied") == 1 ? 0 : 3;
  });
  test::fault_row("A", "read-only directory without a cache").times += 1;
}

}  // namespace
}  // namespace laya::cache
