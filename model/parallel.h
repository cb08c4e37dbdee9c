// A loop over independent pieces of work on a few threads that live as long as the loop.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace laya::model {

/// Calls work(0) ... work(count - 1), each once, begun in this order, on at most `threads` threads
/// (0: one per core), the calling one among them. `work` must not throw.
template <class Work>
void parallel_for(size_t count, int threads, const Work& work) {
  std::atomic<size_t> next{0};
  const auto loop = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  const size_t wanted = threads > 0 ? static_cast<size_t>(threads)
                                    : std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (size_t i = 1; i < std::min(wanted, count); ++i) helpers.emplace_back(loop);
  loop();
}

}  // namespace laya::model
