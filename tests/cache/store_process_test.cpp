// Several processes on one directory: at once, killed in the middle, and forked with open handles.
#include <signal.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::in_child;
using test::key_of;
using test::Log;
using test::options_for;
using test::RawDatabase;
using test::record_of;
using test::same;
using test::start_child;
using test::status_of;
using test::TempDirectory;

/// Lets two processes take turns.
class Signal {
 public:
  Signal() { REQUIRE(::pipe(ends_.data()) == 0); }
  ~Signal() {
    for (const int end : ends_) ::close(end);
  }
  void send() const { CHECK(::write(ends_[1], "x", 1) == 1); }
  void wait() const {
    char byte = 0;
    CHECK(::read(ends_[0], &byte, 1) == 1);
  }

 private:
  std::array<int, 2> ends_{};
};

std::string name_of(uint32_t process, uint32_t i) {
  return std::to_string(process) + "/" + std::to_string(i);
}

StoreOptions patient(const TempDirectory& temp) {
  StoreOptions options = options_for(temp);
  options.busy_timeout = std::chrono::seconds(60);
  return options;
}

TEST_CASE("processes that start together on an empty directory share one cache") {
  const TempDirectory temp("new");
  constexpr uint32_t kProcesses = 4, kRecords = 20;
  std::vector<pid_t> children;
  for (uint32_t p = 0; p < kProcesses; ++p) {
    children.push_back(start_child([&, p] {
      const auto store = Store::open(patient(temp));
      for (uint32_t i = 0; i < kRecords; ++i) {
        if (!store->put(key_of(name_of(p, i)), record_of(p * 100 + i))) return 1;
        if (!store->put(key_of(name_of(99, i)), record_of(i))) return 2;
        const auto shared = store->find(key_of(name_of(99, i)), "maker-1");
        if (!shared || !same(*shared, record_of(i))) return 3;
      }
      const StoreStats stats = store->stats();
      return stats.busy + stats.errors + stats.damaged == 0 ? 0 : 4;
    }));
  }
  for (const pid_t child : children) CHECK(status_of(child) == 0);
  const auto store = Store::open(options_for(temp));
  CHECK(store->list()->size() == (kProcesses + 1) * kRecords);
  CHECK(store->verify(false)->empty());
  for (uint32_t p = 0; p < kProcesses; ++p) {
    CHECK(same(*store->find(key_of(name_of(p, 7)), "maker-1"), record_of(p * 100 + 7)));
  }
}

TEST_CASE("a process killed at any moment leaves whole records or none") {
  const TempDirectory temp = TempDirectory::in_memory();
  int killed = 0, found = 0;
  for (uint32_t round = 0; round < 40; ++round) {
    const Signal stored;
    const pid_t child = start_child([&] {
      const auto store = Store::open(patient(temp));
      for (uint32_t i = 0;; ++i) {
        store->put(key_of(name_of(round, i % 50)), record_of(i % 50, 20000));
        if (i == 0) stored.send();
      }
      return 0;
    });
    // Every other child is killed in the middle of its puts, the others perhaps while they open.
    if (round % 2 == 0) stored.wait();
    std::this_thread::sleep_for(std::chrono::microseconds(613 * round % 8000));
    ::kill(child, SIGKILL);
    killed += status_of(child) == -SIGKILL;
    Log log;
    StoreOptions options = options_for(temp, &log);
    const auto store = Store::open(options);
    REQUIRE(store->mode() == StoreMode::kReadWrite);
    for (uint32_t i = 0; i < 50; ++i) {
      const auto record = store->find(key_of(name_of(round, i)), "maker-1");
      if (!record) continue;
      ++found;
      CHECK(same(*record, record_of(i, 20000)));
    }
    CHECK(store->put(key_of("after"), record_of(round)));
    CHECK(store->stats().damaged + store->stats().errors + store->stats().busy == 0);
    CHECK(log.lines().empty());
  }
  CHECK(killed == 40);
  CHECK(found > 0);
  CHECK(Store::open(options_for(temp))->verify(false)->empty());
  MESSAGE(killed << " processes killed, " << found << " of their records found whole");
}

TEST_CASE("a forked child uses the store of its parent with connections of its own") {
  const TempDirectory temp;
  const auto store = Store::open(patient(temp));
  REQUIRE(store->put(key_of("parent"), record_of(1)));
  REQUIRE(store->find(key_of("parent"), "maker-1"));
  CHECK(in_child([&] {
          if (!store->find(key_of("parent"), "maker-1")) return 1;
          if (!store->put(key_of("child"), record_of(2))) return 2;
          store->flush();
          return 0;
        }) == 0);
  CHECK(store->find(key_of("child"), "maker-1"));
  CHECK(store->put(key_of("parent 2"), record_of(3)));
  store->flush();
  // The hit before the fork was counted by the parent only.
  CHECK(RawDatabase(temp.database()).integer("SELECT sum(hits) FROM usage") == 3);
  CHECK(store->verify(false)->empty());
}

TEST_CASE("a parent that closes its store takes nothing away from its child") {
  // With a connection inherited from the parent, SQLite in the child would believe in locks that it
  // does not hold: the parent would remove the write-ahead log that the child is writing to.
  const TempDirectory temp;
  auto store = Store::open(patient(temp));
  REQUIRE(store->put(key_of("parent"), record_of(1)));
  const Signal child_is_open, parent_is_closed;
  const pid_t child = start_child([&] {
    if (!store->find(key_of("parent"), "maker-1")) return 1;
    child_is_open.send();
    parent_is_closed.wait();
    return store->put(key_of("child"), record_of(2)) ? 0 : 2;
  });
  child_is_open.wait();
  store.reset();
  parent_is_closed.send();
  CHECK(status_of(child) == 0);
  store = Store::open(options_for(temp));
  CHECK(store->find(key_of("parent"), "maker-1"));
  CHECK(store->find(key_of("child"), "maker-1"));
  CHECK(store->verify(false)->empty());
}

TEST_CASE("a fork while other threads use the store leaves parent and child with a working one") {
  const TempDirectory temp = TempDirectory::in_memory();
  const auto store = Store::open(patient(temp));
  REQUIRE(store->put(key_of("k"), record_of(1)));
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; !done; ++i) {
        if (!store->put(key_of(name_of(t, i % 20)), record_of(i % 20))) ++wrong;
        if (!store->find(key_of("k"), "maker-1")) ++wrong;
      }
    });
  }
  for (uint32_t round = 0; round < 10; ++round) {
    CHECK(in_child([&] {
            if (!store->find(key_of("k"), "maker-1")) return 1;
            return store->put(key_of(name_of(50, round)), record_of(round)) ? 0 : 2;
          }) == 0);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  for (uint32_t round = 0; round < 10; ++round) {
    CHECK(store->find(key_of(name_of(50, round)), "maker-1"));
  }
  CHECK(store->verify(false)->empty());
}

TEST_CASE(
    "a fork that runs no handlers leaves the child without a store, and the parent unharmed") {
#ifdef __SANITIZE_THREAD__
  MESSAGE("[SKIP] a bare fork() system call is beyond the thread sanitizer");
#else
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  REQUIRE(store->put(key_of("parent"), record_of(1)));
  const auto child = static_cast<pid_t>(::syscall(SYS_fork));
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool nothing = !store->find(key_of("parent"), "maker-1") &&
                         !store->put(key_of("child"), record_of(2)) &&
                         Store::open(options_for(temp))->mode() == StoreMode::kMemoryOnly;
    ::_exit(nothing ? 0 : 1);
  }
  CHECK(status_of(child) == 0);
  CHECK(store->find(key_of("parent"), "maker-1"));
  CHECK(store->put(key_of("parent 2"), record_of(2)));
  CHECK(store->verify(false)->empty());
#endif
}

}  // namespace
}  // namespace laya::cache
