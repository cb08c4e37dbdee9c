// Runs batches one after the other in memory of its own: packs rows, copies, launches or replays,
// reads the results back.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>

#include "cache/result.h"
#include "jit/device.h"
#include "model/batch.h"
#include "model/forward.h"
#include "model/prediction.h"
#include "model/workspace.h"

namespace laya::model {

struct ExecutorStats {
  int64_t batches = 0;
  int64_t graphs_captured = 0;
  int64_t graph_launches = 0;   ///< batches that were one graph launch
  int64_t workspace_bytes = 0;  ///< device memory held between calls
};

/// One thread at a time.
class Executor {
 public:
  /// `model` and what it refers to must outlive the executor. Holds no memory until the first
  /// batch. `max_graphs` 0: never record.
  static Result<std::unique_ptr<Executor>> create(const ForwardModel& model, jit::Device& device,
                                                  int max_graphs);

  /// Predicts validated rows as one batch. Work memory grows to what the largest batch so far
  /// needs. A shape class that comes for the second time is recorded as a graph; the least recently
  /// used class is forgotten beyond `max_graphs`. kDeviceError: no memory, or a kernel failed, or a
  /// logit is not finite.
  Result<void> run(std::span<const Row> rows, std::span<Prediction> predictions);

  const ExecutorStats& stats() const { return stats_; }

 private:
  struct KnownClass {
    ShapeClass shape;
    std::unique_ptr<jit::Graph> graph;  // empty until the class comes again
  };

  Executor(const ForwardModel& model, jit::Device& device) : model_(model), device_(device) {}

  ShapeClass shape_of(std::span<const Row> rows, TileSizes& tiles) const;
  Result<void> reserve(const WorkspaceLayout& layout);
  Result<void> queue(const ShapeClass& shape, const WorkspaceLayout& layout);
  /// A copy and the kernels: what a graph records.
  Result<void> queue_steps(const ShapeClass& shape, const WorkspaceLayout& layout);
  Result<std::unique_ptr<jit::Graph>> capture(const ShapeClass& shape,
                                              const WorkspaceLayout& layout);
  /// The class's entry, now the most recently used one; nullptr if it is new (and noted).
  KnownClass* find_class(const ShapeClass& shape);

  const ForwardModel model_;
  jit::Device& device_;
  std::unique_ptr<jit::Stream> stream_;
  jit::Buffer workspace_;
  jit::Buffer host_input_;
  jit::Buffer host_output_;
  size_t max_graphs_ = 0;
  std::list<KnownClass> classes_;  // most recently used first
  ExecutorStats stats_;
};

}  // namespace laya::model
