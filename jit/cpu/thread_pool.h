// Fork and join for the grids of CPU kernels: workers that exist from the start, blocks claimed one
// after the other by whoever is free.
//
// Several threads may call run() at once. Each works on its own grid, so that none ever waits for
// another's grid to begin, and the workers join whichever grid has blocks left. A second caller
// takes the place of one worker, which then rests: never more threads run than the pool was made
// for (unless there are more callers than that).
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace laya::jit {

class ThreadPool {
 public:
  /// Runs the blocks [begin, end) of a grid. The same thread will probably go on with block `next`,
  /// or is done if the grid has not so many.
  using BlockFn = void (*)(const void* context, uint64_t begin, uint64_t end, uint64_t next);

  /// Starts `threads` - 1 workers (the caller of run() is the other one); fewer if the system
  /// refuses more. `threads` is at least 1. `are_pinned`: worker i stays on core number i of those
  /// that the process may use, counted from 0 and around.
  explicit ThreadPool(int threads, bool are_pinned = false);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  /// Threads that work on a grid, the caller included.
  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Blocks to claim at once where `threads` threads share a grid of `count`.
  static uint64_t chunk_of(uint64_t count, int threads);

  /// Calls `fn` so that each of the blocks [0, count) is run once, and returns when all have been.
  /// What the blocks wrote is visible then. Thread-safe; `fn` must not call run() of the same pool.
  /// In the child of a fork, which has no workers, the caller runs every block itself.
  void run(uint64_t count, BlockFn fn, const void* context);

 private:
  /// One grid that is being run. Lives as long as the pool, so that a worker may look at it late.
  struct alignas(64) Job {
    std::atomic<bool> is_owned{false};
    BlockFn fn = nullptr;
    const void* context = nullptr;
    uint64_t count = 0;
    uint64_t chunk = 1;
    /// Number of workers that are in; kOpen while more may join, kWaiting while the owner sleeps
    /// until all have left.
    std::atomic<uint32_t> members{0};
    alignas(64) std::atomic<uint64_t> next{0};  ///< first block that nobody has claimed
  };

  struct Worker {
    ThreadPool* pool = nullptr;
    int index = 0;  ///< from 1; the caller is 0
    pthread_t thread{};
  };

  static constexpr int kMaxJobs = 16;
  static constexpr uint32_t kOpen = uint32_t{1} << 31;
  static constexpr uint32_t kWaiting = uint32_t{1} << 30;

  static void* work(void* worker);

  Job* acquire_job();
  void open(Job& job, uint64_t count, BlockFn fn, const void* context);
  void close(Job& job);
  void leave();
  void wake_workers(uint64_t count);

  void work_loop(int index);
  bool join_any(int index);
  bool may_work(int index) const;
  bool run_blocks(Job& job, int index);
  uint32_t wait_for_epoch(uint32_t seen, int& spins);

  std::array<Job, kMaxJobs> jobs_;
  std::vector<std::unique_ptr<Worker>> workers_;
  pid_t pid_;
  int max_spins_;
  alignas(64) std::atomic<uint32_t> epoch_{0};  ///< changes when a job is opened
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<int> callers_{0};
  std::atomic<bool> is_stopping_{false};
};

}  // namespace laya::jit
