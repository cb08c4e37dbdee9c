// The model: from a checkpoint directory to predictions.
//
//   LAYA_ASSIGN(auto engine, jit::Engine::create(options));
//   LAYA_ASSIGN(auto model, Model::load("checkpoint", engine, jit::open_cpu_device(0)));
//   LAYA_ASSIGN(auto predictions, model->predict(rows));
//
// Rows are packed, never padded to each other, and a row's result does not depend on the rows that
// it shares a batch with: not in one bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/result.h"
#include "jit/device.h"
#include "jit/engine.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/dtype.h"
#include "model/plan.h"
#include "model/prediction.h"

namespace laya::model {

struct ModelOptions {
  /// Of matrices and activations; sums, norms and the residual stream are fp32 anyway.
  /// Default: default_dtype() of the device's target.
  std::optional<DType> dtype = {};
  /// Shape classes (rounded sizes of a batch) whose work is kept as a recorded graph, per batch in
  /// flight; least recently used goes first; 0: none. Ignored where the device has no graphs.
  int max_graphs = 16;
  /// Batches computed at the same time, each in work memory of its own. 0: one on a GPU, one per
  /// worker thread on the CPU. More callers than that wait their turn.
  int max_in_flight = 0;
};

/// One shape to warm up: `rows` rows of `tokens` tokens and `options` options each.
struct WarmupShape {
  int64_t rows = 1;
  int64_t tokens = 64;
  int64_t options = 3;
};

struct BatchOptions {
  size_t batch_size = 32;  ///< rows per batch; at least 1
  /// Sorts rows by length inside windows of 8 batches, so that batches differ less in size. Results
  /// come in input order and are the same either way.
  bool sort_by_length = false;
};

/// How long loading took, in seconds since load() was called, and counters since then.
struct ModelStats {
  double kernels_ready_s = 0;   ///< every kernel compiled or fetched, and loaded
  double weights_ready_s = 0;   ///< every weight converted and on the device
  double load_s = 0;            ///< both, and load() returned
  int64_t weight_bytes = 0;     ///< on the device
  int64_t workspace_bytes = 0;  ///< on the device, held between calls
  int64_t batches = 0;
  int64_t graphs_captured = 0;
  int64_t graph_launches = 0;  ///< batches that were one graph launch
};

/// Immutable but for its counters. Any number of threads may call any function at once.
class Model {
 public:
  /// Reads the checkpoint, makes every kernel ready (see make_plan()) and moves the weights to
  /// `device`, the last two at the same time. Afterwards nothing of the directory is used, and no
  /// prediction asks `engine` for anything: nothing is compiled on the way to an answer.
  /// Errors: kBadInput (checkpoint or dtype), those of Engine::kernel() and of the device.
  static Result<std::shared_ptr<Model>> load(const std::filesystem::path& directory,
                                             std::shared_ptr<jit::Engine> engine,
                                             std::shared_ptr<jit::Device> device,
                                             const ModelOptions& options = {});

  virtual ~Model() = default;

  /// Predicts all rows as one batch; results in the order of the rows. Work memory is linear in the
  /// tokens of the batch and kept for the next one.
  /// kBadInput: a row is wrong (names the row, the field, the value and what is allowed; see Row)
  /// or the batch has more than kMaxBatchTokens; nothing is computed. kDeviceError: out of memory,
  /// a failing kernel, or a logit that is not finite.
  virtual Result<std::vector<Prediction>> predict(std::span<const Row> rows) = 0;

  /// The same in batches of at most `batch_size` rows, so that work memory is bounded.
  virtual Result<std::vector<Prediction>> predict_batch(std::span<const Row> rows,
                                                        const BatchOptions& options) = 0;

  /// Runs each shape often enough that a later batch of its class runs at full speed. Give the
  /// largest shape first: growing the work memory throws recorded graphs away.
  /// kBadInput: a shape that no row can have.
  virtual Result<void> warmup(std::span<const WarmupShape> shapes) = 0;

  virtual const Config& config() const = 0;
  virtual const Plan& plan() const = 0;
  virtual ModelStats stats() const = 0;
};

}  // namespace laya::model
