#include "jit/cpu/thread_pool.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "jit/cpu/core_count.h"

namespace laya::jit {
namespace {

using Body = std::function<void(uint64_t)>;

void run(ThreadPool& pool, uint64_t count, const Body& body) {
  const auto call = [](const void* context, uint64_t begin, uint64_t end, uint64_t /*next*/) {
    for (uint64_t i = begin; i < end; ++i) (*static_cast<const Body*>(context))(i);
  };
  pool.run(count, call, &body);
}

/// True if each of `count` blocks is run exactly once. The counts are plain integers on purpose: a
/// sanitizer then checks that what the blocks write is handed over.
bool runs_each_once(ThreadPool& pool, uint64_t count) {
  std::vector<int> visits(count, 0);
  run(pool, count, [&](uint64_t i) { ++visits[i]; });
  for (const int n : visits) {
    if (n != 1) return false;
  }
  return true;
}

/// Of the threads of this process that belong to a pool, those that do not sleep.
int awake_workers() {
  int awake = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream stat(task.path() / "stat");
    std::string line;
    std::getline(stat, line);
    const size_t name = line.find("(laya-cpu) ");
    if (name != std::string::npos && line[name + 11] != 'S') ++awake;
  }
  return awake;
}

}  // namespace

TEST_CASE("every block of a grid runs once, whatever the number of threads") {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (const uint64_t count : {0, 1, 2, 3, 7, 64, 1000, 100000}) {
      CHECK(runs_each_once(pool, count));
    }
  }
}

TEST_CASE("blocks are told where their thread will probably go on: behind what all others claim") {
  for (const int threads : {1, 3}) {
    constexpr uint64_t kCount = 1000;
    ThreadPool pool(threads);
    std::mutex mutex;
    std::vector<std::array<uint64_t, 3>> claims;
    const std::function<void(uint64_t, uint64_t, uint64_t)> note = [&](uint64_t begin, uint64_t end,
                                                                       uint64_t next) {
      const std::lock_guard lock(mutex);
      claims.push_back({begin, end, next});
    };
    const auto call = [](const void* context, uint64_t begin, uint64_t end, uint64_t next) {
      (*static_cast<const decltype(note)*>(context))(begin, end, next);
    };
    pool.run(kCount, call, &note);
    REQUIRE(!claims.empty());
    for (const auto& [begin, end, next] : claims) {
      if (threads == 1) {
        CHECK(next == kCount);  // nothing: all are run at once
      } else {
        const uint64_t chunk = ThreadPool::chunk_of(kCount, threads);
        CHECK(end == std::min(begin + chunk, kCount));
        CHECK(next == begin + 3 * chunk);
      }
    }
  }
}

TEST_CASE("many small grids in a row lose no block") {
  ThreadPool pool(4);
  for (int round = 0; round < 3000; ++round) {
    REQUIRE(runs_each_once(pool, static_cast<uint64_t>(round % 9)));
  }
}

TEST_CASE("a grid of one block runs on the calling thread") {
  ThreadPool pool(4);
  std::thread::id id;
  run(pool, 1, [&](uint64_t) { id = std::this_thread::get_id(); });
  CHECK(id == std::this_thread::get_id());
}

TEST_CASE("more than one thread works on a long grid") {
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> has_helped{false};
  // Every block of the caller waits for the worker to have run one.
  run(pool, 64, [&](uint64_t) {
    if (std::this_thread::get_id() != caller) has_helped = true;
    while (!has_helped) std::this_thread::yield();
  });
  CHECK(has_helped);
}

TEST_CASE("several threads launch at once and each gets its own grid done") {
  ThreadPool pool(3);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 500; ++round) {
        if (!runs_each_once(pool, static_cast<uint64_t>(caller + round % 40))) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
}

TEST_CASE("more callers than the pool has room for are served") {
  ThreadPool pool(2);
  constexpr int kCallers = 24;
  std::atomic<int> inside{0};
  std::atomic<int> done{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&] {
      // Block 0 ends only when all callers are inside at once.
      run(pool, 2, [&](uint64_t i) {
        if (i == 0) ++inside;
        while (i == 0 && inside < kCallers) std::this_thread::yield();
      });
      ++done;
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(done == kCallers);
}

TEST_CASE("workers sleep when there is nothing to do") {
  ThreadPool pool(4);
  CHECK(runs_each_once(pool, 100));
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (awake_workers() > 0 && std::chrono::steady_clock::now() < patience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(awake_workers() == 0);
  CHECK(runs_each_once(pool, 100));  // and wake up again
}

TEST_CASE("pinned workers stay on a core each, which the process may use") {
  const std::vector<int> cores = scheduled_cores();
  REQUIRE_FALSE(cores.empty());
  ThreadPool pool(static_cast<int>(cores.size()), /*are_pinned=*/true);
  const auto caller = std::this_thread::get_id();
  std::mutex mutex;
  std::set<std::thread::id> workers;
  std::set<int> used;
  // Every worker takes a block and keeps it until all have one.
  run(pool, cores.size(), [&](uint64_t) {
    if (std::this_thread::get_id() != caller) {
      const std::lock_guard lock(mutex);
      workers.insert(std::this_thread::get_id());
      used.insert(sched_getcpu());
      CHECK(scheduled_cores().size() == 1);
    }
    for (;;) {
      const std::lock_guard lock(mutex);
      if (workers.size() + 1 == cores.size()) break;
    }
  });
  CHECK(used.size() == workers.size());
  for (const int core : used) CHECK(std::count(cores.begin(), cores.end(), core) == 1);
  CHECK(scheduled_cores() == cores);  // the caller's are as they were
}

TEST_CASE("the child of a fork runs its grids alone and can end") {
  auto pool = std::make_unique<ThreadPool>(4);
  CHECK(runs_each_once(*pool, 100));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool ok = runs_each_once(*pool, 100);
    pool.reset();
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace laya::jit
