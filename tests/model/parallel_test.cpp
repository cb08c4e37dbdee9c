#include "model/parallel.h"

#include <doctest/doctest.h>

#include <mutex>
#include <set>

namespace laya::model {

TEST_CASE("each piece of work is done once, whatever the number of threads") {
  for (const int threads : {0, 1, 3, 50}) {
    std::vector<std::atomic<int>> calls(20);
    parallel_for(calls.size(), threads, [&](size_t i) { ++calls[i]; });
    for (const auto& count : calls) CHECK(count == 1);
  }
  parallel_for(0, 4, [](size_t) { FAIL("there is no work"); });
}

TEST_CASE("no more threads than asked for take part") {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  parallel_for(100, 2, [&](size_t) {
    const std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  CHECK(seen.size() <= 2);
}

}  // namespace laya::model
