// The store from outside: what goes in comes out, for the right key and producer only, and what it
// does with directories that will not do.
#include "cache/store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <thread>

#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::key_of;
using test::Log;
using test::options_for;
using test::record_of;
using test::same;
using test::TempDirectory;

TEST_CASE("a record is found again, in this store and in the next one") {
  const TempDirectory temp;
  const Key key = key_of("k");
  {
    const auto store = Store::open(options_for(temp));
    CHECK(store->mode() == StoreMode::kReadWrite);
    CHECK(store->reason().empty());
    CHECK_FALSE(store->find(key, "maker-1"));
    REQUIRE(store->put(key, record_of(1)));
    const auto found = store->find(key, "maker-1");
    REQUIRE(found);
    CHECK(same(*found, record_of(1)));
    CHECK(store->stats().hits == 1);
    CHECK(store->stats().misses == 1);
    CHECK(store->stats().stores == 1);
  }
  const auto store = Store::open(options_for(temp));
  const auto found = store->find(key, "maker-1");
  REQUIRE(found);
  CHECK(same(*found, record_of(1)));
}

TEST_CASE("each producer has its own record; without one the last used is found") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  const Key key = key_of("k");
  Record older = record_of(1), newer = record_of(2);
  newer.producer = "maker-2";
  REQUIRE(store->put(key, older));
  REQUIRE(store->put(key, newer));
  CHECK(same(*store->find(key, "maker-1"), older));
  CHECK(same(*store->find(key, "maker-2"), newer));
  CHECK(same(*store->find(key, ""), newer));
  CHECK_FALSE(store->find(key, "maker-3"));
  // A use counts when it is written down, as by list().
  CHECK(store->find(key, "maker-1"));
  CHECK(store->list());
  CHECK(same(*store->find(key, ""), older));
  REQUIRE(store->put(key, newer));
  CHECK(same(*store->find(key, ""), newer));
  REQUIRE(store->put(key, older));
  CHECK(same(*store->find(key, ""), older));
  CHECK(store->list()->size() == 2);
}

TEST_CASE("storing again replaces the record") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  REQUIRE(store->put(key_of("k"), record_of(2, 100)));
  CHECK(same(*store->find(key_of("k"), "maker-1"), record_of(2, 100)));
  REQUIRE(store->list()->size() == 1);
  CHECK(*store->stored_bytes() == test::recounted_bytes(temp));
}

TEST_CASE("the text that keys have in common is stored once and goes with the last of them") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  const auto texts = [&] {
    return test::RawDatabase(temp.database()).integer("SELECT count(*) FROM texts");
  };
  KeyBuilder builder;
  builder.field("name", "x").common_from_here().field("source", "another one");
  const Key other = std::move(builder).finish();
  REQUIRE(store->put(key_of("a"), record_of(1)));
  REQUIRE(store->put(key_of("b"), record_of(2)));
  CHECK(texts() == 1);
  REQUIRE(store->put(other, record_of(3)));
  CHECK(texts() == 2);
  store->drop(key_of("a"), "maker-1");
  CHECK(texts() == 2);
  store->drop(key_of("b"), "maker-1");
  CHECK(texts() == 1);
  CHECK(same(*store->find(other, "maker-1"), record_of(3)));
  CHECK(*store->stored_bytes() == test::recounted_bytes(temp));
  store->drop(other, "maker-1");
  CHECK(texts() == 0);
  CHECK(*store->stored_bytes() == 0);
}

TEST_CASE("a key without a common text, and one with nothing else, are stored and found") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  KeyBuilder all_own, all_common;
  all_own.field("name", "own");
  all_common.common_from_here().field("name", "common");
  const Key own = std::move(all_own).finish(), common = std::move(all_common).finish();
  REQUIRE(store->put(own, record_of(1)));
  REQUIRE(store->put(common, record_of(2)));
  CHECK(same(*store->find(own, "maker-1"), record_of(1)));
  CHECK(same(*store->find(common, "maker-1"), record_of(2)));
  CHECK(store->verify(false)->empty());
}

TEST_CASE("the same digest with another key text is a miss, and no damage") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  const Key key = key_of("k");
  REQUIRE(store->put(key, record_of(1)));
  const Key collision{key.digest, key_of("l").text};
  CHECK_FALSE(store->find(collision, "maker-1"));
  CHECK_FALSE(store->find(collision, ""));
  CHECK(store->stats().damaged == 0);
  CHECK(store->find(key, "maker-1"));
  test::fault_row("F", "another key under the digest of a stored one").times += 2;
}

TEST_CASE("another record under the id of the wanted one is a miss, and no damage") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  for (const auto& [name, producer] : {std::pair("l", "maker-1"), {"k", "maker-2"}}) {
    CAPTURE(name);
    test::RawDatabase(temp.database())
        .execute("UPDATE artifacts SET id = " + test::id_of(name, producer));
    CHECK_FALSE(store->find(key_of(name), producer));
    CHECK(store->stats().damaged == 0);
    CHECK(store->verify(false)->size() == 1);  // Nobody would find it.
  }
  REQUIRE(store->put(key_of("k"), {"maker-2", "", ""}));
  CHECK(store->list()->size() == 1);
  CHECK(store->find(key_of("k"), "maker-2"));
  test::fault_row("F", "another record under the id of the wanted one").times += 2;
}

TEST_CASE("any bytes can be stored") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  KeyBuilder builder;
  builder.field("source", std::string("a\0'\";\n\xff", 8));
  const Key key = std::move(builder).finish();
  const Record record{std::string("m\0'", 3), std::string("\0\xfe", 2),
                      "'; DROP TABLE artifacts; --"};
  REQUIRE(store->put(key, record));
  CHECK(same(*store->find(key, record.producer), record));
  const Record empty{"m", "", ""};
  REQUIRE(store->put(key, empty));
  CHECK(same(*store->find(key, "m"), empty));
  test::fault_row("K", "quotes, zeros and SQL in every field").times += 1;
}

TEST_CASE("a dropped record is gone, and dropping nothing is fine") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  store->drop(key_of("k"), "maker-2");
  store->drop(key_of("l"), "maker-1");
  CHECK(store->find(key_of("k"), "maker-1"));
  store->drop(key_of("k"), "maker-1");
  CHECK_FALSE(store->find(key_of("k"), "maker-1"));
  CHECK(*store->stored_bytes() == 0);
  CHECK(store->stats().errors == 0);
}

TEST_CASE("directory and files are private") {
  const TempDirectory temp("new/cache");
  const mode_t before = ::umask(0);
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  ::umask(before);
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(temp.path())) {
    CAPTURE(entry.path());
    ++files;
    CHECK(entry.status().permissions() == std::filesystem::perms(0600));
  }
  CHECK(files >= 2);
  CHECK(std::filesystem::status(temp.path()).permissions() == std::filesystem::perms(0700));
}

TEST_CASE("no file of the store is left open in a program that is started") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  size_t open_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (gone || target.string().rfind(temp.path().string(), 0) != 0) continue;
    ++open_files;
    const int fd = std::stoi(entry.path().filename());
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(open_files >= 1);
}

TEST_CASE("odd characters in the path are only characters") {
  for (const std::string name :
       {"a b'ü日本?#%", "%41?mode=memory", "file::memory:", "\"quoted\"", "\n"}) {
    CAPTURE(name);
    const TempDirectory temp(name);
    REQUIRE(Store::open(options_for(temp))->put(key_of("k"), record_of(1)));
    CHECK(std::filesystem::exists(temp.database()));
    CHECK(Store::open(options_for(temp))->find(key_of("k"), ""));
  }
  test::fault_row("K", "quotes, spaces, ?#%, non-ASCII, newlines in the path").times += 5;
}

TEST_CASE("a symbolic link to the directory is followed") {
  const TempDirectory temp("target"), link("link");
  REQUIRE(Store::open(options_for(temp))->put(key_of("k"), record_of(1)));
  std::filesystem::create_directory_symlink(temp.path(), link.path());
  const auto store = Store::open(options_for(link));
  CHECK(store->mode() == StoreMode::kReadWrite);
  CHECK(store->find(key_of("k"), ""));
  test::fault_row("J", "symbolic link to the directory, followed").times += 1;
}

/// Expects a store that keeps nothing and has said why once.
void check_keeps_nothing(Store& store, Log& log, const std::string& reason) {
  CHECK(store.mode() == StoreMode::kMemoryOnly);
  CHECK(store.reason().find(reason) != std::string::npos);
  CHECK(log.lines().size() == 1);
  CHECK(log.count(reason) == 1);
  CHECK_FALSE(store.put(key_of("k"), record_of(1)));
  CHECK_FALSE(store.find(key_of("k"), "maker-1"));
  store.drop(key_of("k"), "maker-1");
  store.flush();
  CHECK(store.list()->empty());
  CHECK(*store.stored_bytes() == 0);
  CHECK(store.stats().misses == 1);
  CHECK(log.lines().size() == 1);
}

TEST_CASE("without a directory nothing is kept, and nothing is said") {
  Log log;
  StoreOptions options;
  options.log = log.function();
  const auto store = Store::open(options);
  CHECK(store->mode() == StoreMode::kMemoryOnly);
  CHECK_FALSE(store->put(key_of("k"), record_of(1)));
  CHECK_FALSE(store->find(key_of("k"), ""));
  CHECK(log.lines().empty());
}

TEST_CASE("a directory that cannot be made: nothing is kept, one warning names path and reason") {
  const TempDirectory temp("file/laya");
  test::write_file(temp.path().parent_path(), "in the way");
  Log log;
  check_keeps_nothing(*Store::open(options_for(temp, &log)), log, "Not a directory");
  CHECK(log.count(temp.path().string()) == 1);
  test::fault_row("A", "directory that cannot be made").times += 1;
}

TEST_CASE("a directory that others can write to: nothing is kept") {
  const TempDirectory temp;
  REQUIRE(::chmod(temp.path().c_str(), 0777) == 0);
  Log log;
  check_keeps_nothing(*Store::open(options_for(temp, &log)), log, "others can write");
  CHECK(std::filesystem::is_empty(temp.path()));
  test::fault_row("J", "world-writable directory").times += 1;
}

TEST_CASE("a database that others can write to, or that is a link, is not used") {
  const TempDirectory temp;
  REQUIRE(Store::open(options_for(temp))->put(key_of("k"), record_of(1)));
  REQUIRE(::chmod(temp.database().c_str(), 0666) == 0);
  {
    Log log;
    check_keeps_nothing(*Store::open(options_for(temp, &log)), log, "written by others");
  }
  const auto elsewhere = temp.path() / "elsewhere";
  std::filesystem::rename(temp.database(), elsewhere);
  std::filesystem::create_symlink(elsewhere, temp.database());
  Log log;
  check_keeps_nothing(*Store::open(options_for(temp, &log)), log, "no regular file");
  test::fault_row("J", "database file that others can write to, or that is a link").times += 2;
}

TEST_CASE("the database of somebody else is left exactly as it is") {
  const TempDirectory temp;
  std::filesystem::create_directories(temp.path());
  test::RawDatabase(temp.database())
      .execute("CREATE TABLE theirs(x); INSERT INTO theirs VALUES(1)");
  REQUIRE(::chmod(temp.database().c_str(), 0600) == 0);
  const std::string before = test::read_file(temp.database());
  Log log;
  check_keeps_nothing(*Store::open(options_for(temp, &log)), log, "not a cache of this version");
  CHECK(test::read_file(temp.database()) == before);
  test::fault_row("B", "database of another application, left as it is").times += 1;
}

TEST_CASE("a database of another format version is left exactly as it is") {
  const TempDirectory temp;
  for (const std::string version : {"PRAGMA user_version = 0", "PRAGMA user_version = 1",
                                    "PRAGMA user_version = 2; PRAGMA application_id = 7"}) {
    REQUIRE(Store::open(options_for(temp))->put(key_of("k"), record_of(1)));
    test::RawDatabase(temp.database()).execute(version);
    const std::string before = test::read_file(temp.database());
    Log log;
    check_keeps_nothing(*Store::open(options_for(temp, &log)), log, "not a cache of this version");
    CHECK(test::read_file(temp.database()) == before);
    std::filesystem::remove(temp.database());
  }
  test::fault_row("B", "other schema version or application id, left as it is").times += 3;
}

TEST_CASE("an artifact larger than the cap is not stored and evicts nothing") {
  const TempDirectory temp;
  Log log;
  StoreOptions options = options_for(temp, &log);
  options.max_bytes = 20000;
  const auto store = Store::open(options);
  REQUIRE(store->put(key_of("small"), record_of(1)));
  CHECK_FALSE(store->put(key_of("large"), record_of(2, 20000)));
  CHECK(store->find(key_of("small"), "maker-1"));
  CHECK(store->stats().evicted == 0);
  CHECK(store->stats().errors == 1);
  CHECK(log.lines().size() == 1);
}

TEST_CASE("a directory that is removed while the store is open is made anew by the next put") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  std::filesystem::remove_all(temp.path());
  std::filesystem::create_directory(temp.path());
  CHECK(store->put(key_of("l"), record_of(2)));
  const auto next = Store::open(options_for(temp));
  CHECK(next->find(key_of("l"), ""));
  CHECK_FALSE(next->find(key_of("k"), ""));
  test::fault_row("C", "directory removed while in use").times += 1;
}

TEST_CASE("many threads may use one store") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 25; ++i) {
        const Key own = key_of("own" + std::to_string(t * 100 + i));
        const Key shared = key_of("shared" + std::to_string(i % 5));
        if (!store->put(own, record_of(t * 100 + i))) ++wrong;
        if (!store->put(shared, record_of(i % 5))) ++wrong;
        const auto found = store->find(own, "maker-1");
        if (!found || !same(*found, record_of(t * 100 + i))) ++wrong;
        const auto other = store->find(shared, "");
        if (!other || !same(*other, record_of(i % 5))) ++wrong;
        if (i % 10 == 0) store->flush();
        if (i % 10 == 5 && !store->list()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(store->list()->size() == 105);
  CHECK(store->stats().hits == 200);
  CHECK(store->verify(false)->empty());
}

}  // namespace
}  // namespace laya::cache
