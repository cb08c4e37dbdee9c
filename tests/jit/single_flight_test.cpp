#include "jit/single_flight.h"

#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <new>
#include <thread>
#include <vector>

using namespace laya;
using Table = jit::SingleFlightTable<int, std::shared_ptr<int>, std::hash<int>>;

TEST_CASE("many threads that want one value build it once") {
  constexpr int kThreads = 16;
  Table table;
  std::atomic<int> builds = 0, right = 0;
  std::barrier start(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        const auto value = table.get(7, [&]() -> Result<std::shared_ptr<int>> {
          ++builds;
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          return std::make_shared<int>(42);
        });
        if (value && **value == 42) ++right;
      });
    }
  }
  CHECK(builds == 1);
  CHECK(right == kThreads);
  CHECK(table.find(7));
  CHECK_FALSE(table.find(8));
}

TEST_CASE("a build in flight does not hold up another key") {
  Table table;
  const auto outer = table.get(1, [&]() -> Result<std::shared_ptr<int>> {
    const auto inner =
        table.get(2, []() -> Result<std::shared_ptr<int>> { return std::make_shared<int>(2); });
    return std::make_shared<int>(**inner + 1);
  });
  REQUIRE(outer);
  CHECK(**outer == 3);
}

TEST_CASE("a failure reaches every waiter, is forgotten, and the next call builds again") {
  constexpr int kThreads = 8;
  Table table;
  std::atomic<int> failures = 0;
  std::barrier start(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        const auto value = table.get(7, [&]() -> Result<std::shared_ptr<int>> {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          return fail(ErrorKind::kCompileFailed, "no", "the log");
        });
        if (!value && value.error().detail == "the log") ++failures;
      });
    }
  }
  CHECK(failures == kThreads);
  const auto again =
      table.get(7, []() -> Result<std::shared_ptr<int>> { return std::make_shared<int>(1); });
  CHECK(again);
}

TEST_CASE("an erased value is built again") {
  Table table;
  int builds = 0;
  const auto build = [&]() -> Result<std::shared_ptr<int>> {
    return std::make_shared<int>(++builds);
  };
  CHECK(**table.get(1, build) == 1);
  CHECK(**table.get(1, build) == 1);
  table.erase(1);
  CHECK(**table.get(1, build) == 2);
}

TEST_CASE("an exception while building becomes an error, and the next call builds again") {
  Table table;
  const auto failed =
      table.get(1, []() -> Result<std::shared_ptr<int>> { throw std::bad_alloc(); });
  REQUIRE_FALSE(failed);
  CHECK(failed.error().kind == ErrorKind::kInternal);
  CHECK(table.get(1, []() -> Result<std::shared_ptr<int>> { return std::make_shared<int>(1); }));
}
