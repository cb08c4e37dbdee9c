// Several processes on one directory: at once, killed in the middle, and forked with open handles.
#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "tests/cache/fault_table.h"
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

constexpr uint32_t kKilledKeys = 10;

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
  test::fault_row("D", "4 processes start together on an empty directory").times += 4;
}

bool evicts_in(uint32_t round) {
  return round % 3 == 1;
}

/// Stores without end; every third process also evicts, every third opens a store for each record.
[[noreturn]] void store_until_killed(const TempDirectory& temp, uint32_t round) {
  StoreOptions options = patient(temp);
  if (evicts_in(round)) options.max_bytes = 150000;
  for (uint32_t i = 0;;) {
    const auto store = Store::open(options);
    do {
      store->put(key_of(name_of(0, i % kKilledKeys)), record_of(i % kKilledKeys, 20000));
      ++i;
    } while (round % 3 != 2);
  }
}

/// How long a new process needs for some records: much longer under a sanitizer.
std::chrono::microseconds time_of_storing(const TempDirectory& temp) {
  const auto start = std::chrono::steady_clock::now();
  CHECK(status_of(start_child([&] {
          const auto store = Store::open(patient(temp));
          for (uint32_t i = 0; i < 5; ++i) store->put(key_of("timed"), record_of(i, 20000));
          return 0;
        })) == 0);
  const auto time = std::chrono::steady_clock::now() - start;
  return std::chrono::duration_cast<std::chrono::microseconds>(time);
}

TEST_CASE("a process killed at any moment leaves whole records or none") {
  const TempDirectory temp = TempDirectory::in_memory();
  constexpr uint32_t kRounds = 510;
  test::FaultRow& row = test::fault_row("H", "SIGKILL at a random moment of storing");
  std::mt19937 random(1);
  int64_t found = 0;
  // Stored before, and not by those who are killed: only an eviction may take it.
  REQUIRE(Store::open(options_for(temp))->put(key_of("before"), record_of(1)));
  const auto longest =
      static_cast<uint32_t>(std::max<int64_t>(5000, time_of_storing(temp).count()));
  for (uint32_t round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    const pid_t child = start_child([&]() -> int { store_until_killed(temp, round); });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % longest));
    ::kill(child, SIGKILL);
    row.times += status_of(child) == -SIGKILL;
    Log log;
    const auto store = Store::open(options_for(temp, &log));
    REQUIRE(store->mode() == StoreMode::kReadWrite);
    for (uint32_t i = 0; i < kKilledKeys; ++i) {
      const auto record = store->find(key_of(name_of(0, i)), "maker-1");
      if (!record) continue;
      ++found;
      if (!same(*record, record_of(i, 20000))) ++row.wrong;
    }
    if (!store->find(key_of("before"), "maker-1")) {
      ++(evicts_in(round) ? row.evicted : row.lost);
      CHECK(store->put(key_of("before"), record_of(1)));
    }
    if (round % 10 == 0) CHECK(store->put(key_of("after"), record_of(round)));
    CHECK(store->stats().damaged + store->stats().errors + store->stats().busy == 0);
    CHECK(log.lines().empty());
  }
  CHECK(row.times == kRounds);
  CHECK(row.wrong == 0);
  CHECK(row.lost == 0);
  CHECK(found > 0);
  CHECK(Store::open(options_for(temp))->verify(false)->empty());
  MESSAGE(row.times << " processes killed, " << found << " records found whole");
}

/// One of the threads of one of the processes: everything that a store can do, in random order.
int work_at_random(Store& store, uint32_t seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i) {
    const auto n = static_cast<uint32_t>(random() % 30);
    const Key key = key_of("shared" + std::to_string(n));
    switch (random() % 8) {
      case 0: store.drop(key, "maker-1"); break;
      case 1: store.flush(); break;
      case 2:
        if (!store.list()) return 1;
        break;
      case 3:
      case 4:
        if (!store.put(key, record_of(n, 12000))) return 2;
        break;
      default:
        if (const auto found = store.find(key, "maker-1");
            found && !same(*found, record_of(n, 12000)))
          return 3;
    }
  }
  const StoreStats stats = store.stats();
  return stats.busy + stats.errors + stats.damaged == 0 ? 0 : 4;
}

TEST_CASE("threads of several processes that evict under each other get right answers") {
  const TempDirectory temp = TempDirectory::in_memory();
  constexpr uint32_t kProcesses = 4, kThreads = 3;
  test::FaultRow& row = test::fault_row("D", "4 processes with 3 threads each, evicting");
  std::vector<pid_t> children;
  for (uint32_t p = 0; p < kProcesses; ++p) {
    children.push_back(start_child([&, p] {
      StoreOptions options = patient(temp);
      options.max_bytes = 150000;  // Room for 12 of the 30 records.
      const auto store = Store::open(options);
      std::array<int, kThreads> results{};
      std::vector<std::thread> threads;
      for (uint32_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] { results[t] = work_at_random(*store, p * kThreads + t); });
      }
      for (std::thread& thread : threads) thread.join();
      return *std::max_element(results.begin(), results.end());
    }));
  }
  for (const pid_t child : children) {
    const int status = status_of(child);
    row.times += kThreads;
    row.wrong += status == 3;
    CHECK(status == 0);
  }
  const auto store = Store::open(options_for(temp));
  CHECK(*store->stored_bytes() <= 150000);
  CHECK(*store->stored_bytes() == test::recounted_bytes(temp));
  CHECK(store->verify(false)->empty());
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
  test::fault_row("M", "fork with an open store").times += 1;
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
  test::fault_row("M", "parent closes while the forked child stores").times += 1;
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
  test::fault_row("M", "fork while other threads use the store").times += 10;
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
  test::fault_row("M", "fork that runs no handlers").times += 1;
#endif
}

}  // namespace
}  // namespace laya::cache
