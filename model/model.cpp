#include "model/model.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <string>

#include "model/checkpoint.h"
#include "model/executor_pool.h"
#include "model/loaded_plan.h"
#include "model/tuned_tiles.h"
#include "model/weights.h"

namespace laya::model {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int default_in_flight(const jit::Device& device) {
  return device.target().backend == jit::Backend::kCpu ? std::max(1, device.processor_count()) : 1;
}

Row warmup_row(const WarmupShape& shape) {
  Row row;
  row.ids.assign(static_cast<size_t>(shape.tokens), 0);
  row.markers.resize(static_cast<size_t>(shape.options));
  std::iota(row.markers.begin(), row.markers.end(), 0);
  return row;
}

// The order in which predict_batch takes the rows.
std::vector<size_t> batch_order(std::span<const Row> rows, const BatchOptions& options) {
  constexpr size_t kWindowBatches = 8;
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!options.sort_by_length) return order;
  const size_t window =
      std::min(rows.size(), std::min(options.batch_size, rows.size()) * kWindowBatches);
  for (size_t begin = 0; begin < order.size(); begin += window) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last =
        order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), begin + window));
    std::stable_sort(first, last,
                     [&](size_t a, size_t b) { return rows[a].ids.size() < rows[b].ids.size(); });
  }
  return order;
}

class LoadedModel final : public Model {
 public:
  LoadedModel(Config config, std::shared_ptr<jit::Device> device,
              std::unique_ptr<const LoadedPlan> plan, Weights weights, const ModelOptions& options)
      : config_(std::move(config)),
        device_(std::move(device)),
        plan_(std::move(plan)),
        weights_(std::move(weights)),
        executors_(
            {config_, *plan_, weights_}, *device_, options.max_graphs,
            options.max_in_flight > 0 ? options.max_in_flight : default_in_flight(*device_)) {}

  Result<std::vector<Prediction>> predict(std::span<const Row> rows) override {
    LAYA_TRY(validate_rows(rows, config_));
    std::vector<Prediction> predictions(rows.size());
    LAYA_TRY(executors_.run(rows, predictions));
    return predictions;
  }

  Result<std::vector<Prediction>> predict_batch(std::span<const Row> rows,
                                                const BatchOptions& options) override {
    if (options.batch_size < 1) {
      return fail(ErrorKind::kBadInput, "batch_size is 0, allowed: at least 1");
    }
    LAYA_TRY(validate_each_row(rows, config_));
    const std::vector<size_t> order = batch_order(rows, options);
    std::vector<Prediction> predictions(rows.size());
    for (size_t begin = 0; begin < order.size(); begin += options.batch_size) {
      const size_t count = std::min(options.batch_size, order.size() - begin);
      LAYA_TRY(predict_some(rows, std::span(order).subspan(begin, count), predictions));
    }
    return predictions;
  }

  Result<void> warmup(std::span<const WarmupShape> shapes) override {
    constexpr int kRuns = 3;  // directly, recording, replaying
    for (const WarmupShape& shape : shapes) {
      if (shape.rows < 1 || shape.tokens < 1 || shape.options < 1) {
        return fail(ErrorKind::kBadInput, "a warm-up shape has a size below 1");
      }
      if (shape.rows * std::min(shape.tokens, config_.max_positions) > kMaxBatchTokens ||
          shape.tokens > config_.max_positions || shape.options > kMaxOptions) {
        return fail(ErrorKind::kBadInput, "a warm-up shape of " + std::to_string(shape.rows) +
                                              " x " + std::to_string(shape.tokens) +
                                              " tokens is larger than a batch can be");
      }
      const std::vector<Row> rows(static_cast<size_t>(shape.rows), warmup_row(shape));
      LAYA_TRY(validate_rows(rows, config_));
      LAYA_TRY(executors_.warm(rows, kRuns));
    }
    return {};
  }

  const Config& config() const override { return config_; }
  const Plan& plan() const override { return plan_->plan(); }

  ModelStats stats() const override {
    ModelStats stats = load_stats_;
    const ExecutorStats executed = executors_.stats();
    stats.weight_bytes = static_cast<int64_t>(weights_.storage.size());
    stats.workspace_bytes = executed.workspace_bytes;
    stats.batches = executed.batches;
    stats.graphs_captured = executed.graphs_captured;
    stats.graph_launches = executed.graph_launches;
    return stats;
  }

  void set_load_stats(const ModelStats& stats) { load_stats_ = stats; }

 private:
  Result<void> predict_some(std::span<const Row> rows, std::span<const size_t> chosen,
                            std::vector<Prediction>& predictions) {
    std::vector<Row> batch;
    for (const size_t index : chosen) batch.push_back(rows[index]);
    LAYA_ASSIGN(auto results, predict(batch));
    for (size_t i = 0; i < chosen.size(); ++i) predictions[chosen[i]] = std::move(results[i]);
    return {};
  }

  // Declared in the order of use: executors refer to all of the others and go first.
  const Config config_;
  const std::shared_ptr<jit::Device> device_;
  const std::unique_ptr<const LoadedPlan> plan_;
  const Weights weights_;
  ExecutorPool executors_;
  ModelStats load_stats_;
};

struct TimedPlan {
  Result<std::unique_ptr<const LoadedPlan>> plan;
  double ready_s;
};

}  // namespace

Result<std::shared_ptr<Model>> Model::load(const std::filesystem::path& directory,
                                           std::shared_ptr<jit::Engine> engine,
                                           std::shared_ptr<jit::Device> device,
                                           const ModelOptions& options) {
  const auto start = Clock::now();
  const jit::Target& target = device->target();
  const DType dtype = options.dtype.value_or(default_dtype(target));
  LAYA_TRY(check_precision(dtype, target));
  LAYA_ASSIGN(const Checkpoint checkpoint, open_checkpoint(directory));
  const Plan plan =
      with_tuned_tiles(make_plan(checkpoint.config, {checkpoint.table_dtype(), dtype}, target),
                       engine->store(), &engine->layers());

  // Kernels are made ready while the weights are read. A GPU's driver loads no kernel while it pins
  // memory for an upload, so kernels from the cache come first; compiling takes longer than this.
  const bool is_gpu = target.backend == jit::Backend::kCuda;
  const std::chrono::milliseconds kernels_first(is_gpu ? 30 : 0);
  auto kernels = std::async(std::launch::async, [&] {
    auto loaded = LoadedPlan::load(plan, *engine);
    return TimedPlan{std::move(loaded), seconds_since(start)};
  });
  auto weights =
      load_weights(checkpoint, plan, *device, *engine, [&] { kernels.wait_for(kernels_first); });
  ModelStats stats;
  stats.weights_ready_s = seconds_since(start);
  TimedPlan ready = kernels.get();
  if (!ready.plan) return tl::make_unexpected(std::move(ready.plan).error());
  if (!weights) return tl::make_unexpected(std::move(weights).error());
  stats.kernels_ready_s = ready.ready_s;

  auto model = std::make_shared<LoadedModel>(checkpoint.config, std::move(device),
                                             std::move(*ready.plan), std::move(*weights), options);
  stats.load_s = seconds_since(start);
  model->set_load_stats(stats);
  return model;
}

}  // namespace laya::model
