// Executors for any number of threads: each caller gets one for itself, or waits for one.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cache/result.h"
#include "model/executor.h"

namespace laya::model {

/// Thread-safe.
class ExecutorPool {
 public:
  /// Makes executors when they are needed, at most `limit` (at least 1). See Executor::create().
  ExecutorPool(const ForwardModel& model, jit::Device& device, int max_graphs, int limit)
      : model_(model), device_(device), max_graphs_(max_graphs), limit_(limit) {}

  /// Executor::run() on whichever executor is free.
  Result<void> run(std::span<const Row> rows, std::span<Prediction> predictions);

  /// Runs the batch `times` times on every executor that graphs are recorded for, made now if it
  /// does not exist yet; on one executor where the device has no graphs.
  Result<void> warm(std::span<const Row> rows, int times);

  /// Summed over all executors.
  ExecutorStats stats() const;

 private:
  Result<std::unique_ptr<Executor>> acquire();
  void release(std::unique_ptr<Executor> executor);
  Result<void> run_on(Executor& executor, std::span<const Row> rows,
                      std::span<Prediction> predictions);

  const ForwardModel model_;
  jit::Device& device_;
  const int max_graphs_;
  const int limit_;

  std::mutex warming_;  // two that each hold half of the executors would wait for ever
  mutable std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<Executor>> idle_;  // the most recently used is last and goes first
  int made_ = 0;
  ExecutorStats stats_;
};

}  // namespace laya::model
