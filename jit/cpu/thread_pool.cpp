#include "jit/cpu/thread_pool.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "jit/cpu/core_count.h"

namespace laya::jit {
namespace {

/// How long a worker looks for the next grid before it sleeps: some 30 us, longer than the pause
/// between two kernels of a forward pass and far shorter than anybody would notice.
constexpr int kMaxSpins = 1000;
constexpr int kMinSpins = 200;

/// Claims per thread and grid that are wanted: enough to even out blocks of unequal length, few
/// enough for the counter not to matter.
constexpr uint64_t kClaimsPerThread = 32;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

uint32_t* word(std::atomic<uint32_t>& value) {
  static_assert(sizeof value == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  return reinterpret_cast<uint32_t*>(&value);
}

/// Sleeps while `value` is `seen`; may return early.
void futex_wait(std::atomic<uint32_t>& value, uint32_t seen) {
  syscall(SYS_futex, word(value), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& value, int threads) {
  syscall(SYS_futex, word(value), FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

/// Keeps a thread on one core; without effect where the system refuses.
void pin(pthread_t thread, int core) {
  cpu_set_t* set = CPU_ALLOC(core + 1);
  if (set == nullptr) return;
  const size_t bytes = CPU_ALLOC_SIZE(core + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(static_cast<size_t>(core), bytes, set);
  pthread_setaffinity_np(thread, bytes, set);
  CPU_FREE(set);
}

/// Blocks every signal in the threads made while it lives: an application's handlers are not to run
/// on a worker.
class SignalBlocker {
 public:
  SignalBlocker() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  SignalBlocker(const SignalBlocker&) = delete;
  SignalBlocker& operator=(const SignalBlocker&) = delete;
  ~SignalBlocker() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

 private:
  sigset_t previous_;
};

}  // namespace

ThreadPool::ThreadPool(int threads, bool are_pinned)
    : pid_(getpid()),
      // With more threads than cores, one that spins keeps another from its work.
      max_spins_(threads <= available_cores() ? kMaxSpins : 0) {
  const SignalBlocker blocker;
  const std::vector<int> cores = are_pinned ? scheduled_cores() : std::vector<int>();
  for (int index = 1; index < threads; ++index) {
    auto worker = std::make_unique<Worker>();
    worker->pool = this;
    worker->index = index;
    if (pthread_create(&worker->thread, nullptr, work, worker.get()) != 0) break;
    pthread_setname_np(worker->thread, "laya-cpu");
    if (!cores.empty()) pin(worker->thread, cores[static_cast<size_t>(index) % cores.size()]);
    workers_.push_back(std::move(worker));
  }
}

ThreadPool::~ThreadPool() {
  if (getpid() != pid_) return;  // the workers stayed behind in the parent
  is_stopping_.store(true);
  epoch_.fetch_add(1);
  futex_wake(epoch_, INT_MAX);
  for (const auto& worker : workers_) pthread_join(worker->thread, nullptr);
}

void ThreadPool::run(uint64_t count, BlockFn fn, const void* context) {
  if (count == 0) return;
  const bool is_alone = count == 1 || workers_.empty() || getpid() != pid_;
  Job* job = is_alone ? nullptr : acquire_job();
  if (job == nullptr) return fn(context, 0, count, count);
  callers_.fetch_add(1, std::memory_order_relaxed);
  open(*job, count, fn, context);
  wake_workers(count - 1);
  run_blocks(*job, 0);
  close(*job);
  leave();
}

uint64_t ThreadPool::chunk_of(uint64_t count, int threads) {
  return std::max<uint64_t>(1, count / (kClaimsPerThread * static_cast<uint64_t>(threads)));
}

/// Null if more threads are calling than there is room for; they run their grids alone.
ThreadPool::Job* ThreadPool::acquire_job() {
  for (Job& job : jobs_) {
    if (!job.is_owned.load(std::memory_order_relaxed) &&
        !job.is_owned.exchange(true, std::memory_order_acquire)) {
      return &job;
    }
  }
  return nullptr;
}

void ThreadPool::open(Job& job, uint64_t count, BlockFn fn, const void* context) {
  job.fn = fn;
  job.context = context;
  job.count = count;
  job.chunk = chunk_of(count, size());
  job.next.store(0, std::memory_order_relaxed);
  // Publishes the fields: a worker reads them only after it has seen kOpen.
  job.members.fetch_or(kOpen, std::memory_order_release);
}

void ThreadPool::wake_workers(uint64_t count) {
  // Sequentially consistent, as are the steps of a worker that goes to sleep: either it sees the
  // new epoch, or it is seen here.
  epoch_.fetch_add(1);
  if (sleepers_.load() == 0) return;
  futex_wake(epoch_, static_cast<int>(std::min<uint64_t>(count, workers_.size())));
}

/// Lets nobody in any more, waits for those who are in, and gives the job back.
void ThreadPool::close(Job& job) {
  uint32_t members = job.members.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spins = 0; members != 0 && spins < max_spins_; ++spins) {
    pause();
    members = job.members.load(std::memory_order_acquire);
  }
  if (members != 0) {
    members = job.members.fetch_or(kWaiting, std::memory_order_acq_rel) | kWaiting;
    while (members != kWaiting) {
      futex_wait(job.members, members);
      members = job.members.load(std::memory_order_acquire);
    }
    job.members.fetch_and(~kWaiting, std::memory_order_relaxed);
  }
  job.is_owned.store(false, std::memory_order_release);
}

/// Ends a call of run(). If there are others, the worker whose place it took can help them.
void ThreadPool::leave() {
  if (callers_.fetch_sub(1, std::memory_order_relaxed) > 1) wake_workers(workers_.size());
}

void* ThreadPool::work(void* argument) {
  auto* worker = static_cast<Worker*>(argument);
  worker->pool->work_loop(worker->index);
  return nullptr;
}

void ThreadPool::work_loop(int index) {
  int spins = max_spins_;
  uint32_t seen = 0;
  while (!is_stopping_.load()) {
    if (!join_any(index)) seen = wait_for_epoch(seen, spins);
  }
}

/// Each caller beyond the first does the work of one worker.
bool ThreadPool::may_work(int index) const {
  return index + callers_.load(std::memory_order_relaxed) <= size();
}

/// Claims blocks until there are none left, or until a worker has to rest. False if there was none.
bool ThreadPool::run_blocks(Job& job, int index) {
  const uint64_t count = job.count;
  const uint64_t chunk = job.chunk;
  const uint64_t stride = chunk * static_cast<uint64_t>(size());  // if all are equally fast
  bool has_worked = false;
  while (index == 0 || may_work(index)) {
    // Reading first keeps late-comers from writing to a line that the others are done with.
    if (job.next.load(std::memory_order_relaxed) >= count) break;
    const uint64_t begin = job.next.fetch_add(chunk, std::memory_order_relaxed);
    if (begin >= count) break;
    job.fn(job.context, begin, std::min(begin + chunk, count), begin + stride);
    has_worked = true;
  }
  return has_worked;
}

/// Works on every grid that has blocks left. False if there was none.
bool ThreadPool::join_any(int index) {
  bool has_worked = false;
  for (Job& job : jobs_) {
    if ((job.members.load(std::memory_order_acquire) & kOpen) == 0 || !may_work(index)) continue;
    const uint32_t before = job.members.fetch_add(1, std::memory_order_acquire);
    if ((before & kOpen) != 0) has_worked |= run_blocks(job, index);
    // Publishes what the blocks wrote. The last one out wakes an owner that sleeps in close().
    if (job.members.fetch_sub(1, std::memory_order_release) == (kWaiting | 1)) {
      futex_wake(job.members, 1);
    }
  }
  return has_worked;
}

/// Returns the epoch once it differs from `seen`: spins first, then sleeps. `spins` grows back when
/// spinning was worth it and shrinks when it was not.
uint32_t ThreadPool::wait_for_epoch(uint32_t seen, int& spins) {
  for (int i = 0; i < spins; ++i) {
    const uint32_t epoch = epoch_.load(std::memory_order_acquire);
    if (epoch != seen) {
      spins = max_spins_;
      return epoch;
    }
    pause();
  }
  spins = std::min(max_spins_, std::max(spins / 2, kMinSpins));
  sleepers_.fetch_add(1);
  if (epoch_.load() == seen) futex_wait(epoch_, seen);
  sleepers_.fetch_sub(1);
  return epoch_.load();
}

}  // namespace laya::jit
