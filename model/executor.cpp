#include "model/executor.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace laya::model {
namespace {

std::vector<float> softmax(std::span<const float> logits) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  std::vector<float> result;
  float sum = 0.0F;
  for (const float logit : logits) {
    result.push_back(std::exp(logit - highest));
    sum += result.back();
  }
  for (float& p : result) p /= sum;
  return result;
}

Result<void> check_finite(std::span<const float> values, size_t row) {
  if (std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) {
    return {};
  }
  return fail(ErrorKind::kDeviceError,
              "row " + std::to_string(row) +
                  " of the batch: a logit is not finite; the model's activations may be too large "
                  "for the compute dtype");
}

// `output` as run_forward() leaves it.
Result<void> read_predictions(std::span<const Row> rows, const ShapeClass& shape, int64_t actions,
                              const float* output, std::span<Prediction> predictions) {
  const float* logits = output;
  const float* action_logits = output + shape.markers;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span row_logits(logits, rows[i].markers.size());
    const std::span row_actions(action_logits, static_cast<size_t>(actions));
    LAYA_TRY(check_finite(row_logits, i));
    LAYA_TRY(check_finite(row_actions, i));
    predictions[i].logits.assign(row_logits.begin(), row_logits.end());
    predictions[i].probabilities = softmax(row_logits);
    predictions[i].action_logits.assign(row_actions.begin(), row_actions.end());
    logits += row_logits.size();
    action_logits += actions;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(const ForwardModel& model, jit::Device& device,
                                                   int max_graphs) {
  std::unique_ptr<Executor> executor(new Executor(model, device));
  LAYA_ASSIGN(executor->stream_, device.create_stream());
  executor->max_graphs_ = device.has_graphs() ? static_cast<size_t>(max_graphs) : 0;
  return executor;
}

Result<void> Executor::run(std::span<const Row> rows, std::span<Prediction> predictions) {
  if (rows.empty()) return {};
  TileSizes tiles;
  const ShapeClass shape = shape_of(rows, tiles);
  const WorkspaceLayout layout(model_.config, model_.plan.plan(), shape);
  LAYA_TRY(reserve(layout));
  fill_batch(rows, shape, tiles, BatchLayout(shape), host_input_.as<int32_t>());
  const auto queued = queue(shape, layout);
  // Also after a failure: what was queued before it still uses the buffers.
  const auto finished = stream_->synchronize();
  LAYA_TRY(queued);
  LAYA_TRY(finished);
  ++stats_.batches;
  return read_predictions(rows, shape, model_.config.actions, host_output_.as<float>(),
                          predictions);
}

Result<void> Executor::queue(const ShapeClass& shape, const WorkspaceLayout& layout) {
  KnownClass* const known = max_graphs_ > 0 ? find_class(shape) : nullptr;
  if (known == nullptr) return queue_steps(shape, layout);
  if (!known->graph) {
    LAYA_ASSIGN(known->graph, capture(shape, layout));
    ++stats_.graphs_captured;
  }
  ++stats_.graph_launches;
  return stream_->launch(*known->graph);
}

Result<void> Executor::queue_steps(const ShapeClass& shape, const WorkspaceLayout& layout) {
  auto* const workspace = workspace_.as<std::byte>();
  LAYA_TRY(
      stream_->copy_to_device(workspace + layout.input, host_input_.data(), layout.input_bytes));
  return run_forward(model_, shape, workspace, host_output_.as<float>(), *stream_);
}

// Without graphs nothing is gained by rounding, so that nothing is padded.
ShapeClass Executor::shape_of(std::span<const Row> rows, TileSizes& tiles) const {
  int64_t tokens = 0;
  for (const Row& row : rows) tokens += std::ssize(row.ids);
  const bool is_rounded = max_graphs_ > 0;
  if (is_rounded) tokens = rounded_tokens(tokens);
  tiles = tile_sizes(model_.plan.plan(), tokens);
  const ShapeClass exact = exact_shape(rows, tiles);
  return is_rounded ? rounded_shape(exact, tiles) : exact;
}

Result<void> Executor::reserve(const WorkspaceLayout& layout) {
  if (layout.input_bytes <= host_input_.size() && layout.output_bytes <= host_output_.size() &&
      layout.bytes <= workspace_.size()) {
    return {};
  }
  // Graphs hold addresses of the old blocks. A block goes before a new one comes, so that the peak
  // is no more than the largest batch needs.
  for (KnownClass& known : classes_) known.graph.reset();
  const auto grow = [](jit::Buffer& buffer, size_t bytes, const auto& allocate) -> Result<void> {
    if (bytes <= buffer.size()) return {};
    buffer = {};
    LAYA_ASSIGN(buffer, allocate(bytes));
    return {};
  };
  const auto on_host = [&](size_t bytes) { return device_.allocate_host(bytes); };
  LAYA_TRY(grow(host_input_, layout.input_bytes, on_host));
  LAYA_TRY(grow(host_output_, layout.output_bytes, on_host));
  stats_.workspace_bytes = 0;
  LAYA_TRY(grow(workspace_, layout.bytes, [&](size_t n) { return device_.allocate(n); }));
  stats_.workspace_bytes = static_cast<int64_t>(workspace_.size());
  return {};
}

Result<std::unique_ptr<jit::Graph>> Executor::capture(const ShapeClass& shape,
                                                      const WorkspaceLayout& layout) {
  LAYA_TRY(stream_->begin_capture());
  const auto queued = queue_steps(shape, layout);
  auto graph = stream_->end_capture();  // in any case, so that the stream can be used again
  if (!queued) return tl::make_unexpected(queued.error());
  return graph;
}

Executor::KnownClass* Executor::find_class(const ShapeClass& shape) {
  const auto found = std::find_if(classes_.begin(), classes_.end(),
                                  [&](const KnownClass& known) { return known.shape == shape; });
  if (found != classes_.end()) {
    classes_.splice(classes_.begin(), classes_, found);
    return &classes_.front();
  }
  classes_.push_front({shape, nullptr});
  if (classes_.size() > max_graphs_) classes_.pop_back();
  return nullptr;
}

}  // namespace laya::model
