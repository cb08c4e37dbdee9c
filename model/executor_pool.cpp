#include "model/executor_pool.h"

namespace laya::model {

Result<void> ExecutorPool::run(std::span<const Row> rows, std::span<Prediction> predictions) {
  LAYA_ASSIGN(auto executor, acquire());
  auto done = run_on(*executor, rows, predictions);
  release(std::move(executor));
  return done;
}

Result<void> ExecutorPool::warm(std::span<const Row> rows, int times) {
  const std::lock_guard lock(warming_);
  const int count = device_.has_graphs() && max_graphs_ > 0 ? limit_ : 1;
  std::vector<std::unique_ptr<Executor>> held;
  Result<void> outcome;
  std::vector<Prediction> predictions(rows.size());
  for (int i = 0; i < count && outcome; ++i) {
    auto executor = acquire();
    if (!executor) {
      outcome = tl::make_unexpected(std::move(executor).error());
      break;
    }
    held.push_back(std::move(*executor));
    for (int n = 0; n < times && outcome; ++n) outcome = run_on(*held.back(), rows, predictions);
  }
  for (auto& executor : held) release(std::move(executor));
  return outcome;
}

ExecutorStats ExecutorPool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

Result<std::unique_ptr<Executor>> ExecutorPool::acquire() {
  std::unique_lock lock(mutex_);
  returned_.wait(lock, [&] { return !idle_.empty() || made_ < limit_; });
  if (!idle_.empty()) {
    auto executor = std::move(idle_.back());
    idle_.pop_back();
    return executor;
  }
  auto made = Executor::create(model_, device_, max_graphs_);
  if (made) ++made_;
  return made;
}

void ExecutorPool::release(std::unique_ptr<Executor> executor) {
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(executor));
  }
  returned_.notify_one();
}

Result<void> ExecutorPool::run_on(Executor& executor, std::span<const Row> rows,
                                  std::span<Prediction> predictions) {
  const ExecutorStats before = executor.stats();
  auto done = executor.run(rows, predictions);
  const ExecutorStats& after = executor.stats();
  const std::lock_guard lock(mutex_);
  stats_.batches += after.batches - before.batches;
  stats_.graphs_captured += after.graphs_captured - before.graphs_captured;
  stats_.graph_launches += after.graph_launches - before.graph_launches;
  stats_.workspace_bytes += after.workspace_bytes - before.workspace_bytes;
  return done;
}

}  // namespace laya::model
