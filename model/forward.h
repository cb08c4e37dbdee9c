// The forward pass: one sequence of launches for every backend.
#pragma once

#include <cstddef>

#include "cache/result.h"
#include "jit/device.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/loaded_plan.h"
#include "model/weights.h"

namespace laya::model {

/// What stays the same from batch to batch.
struct ForwardModel {
  const Config& config;
  const LoadedPlan& plan;
  const Weights& weights;
};

/// Queries per attention tile of a batch of `tokens` (of its class).
TileSizes tile_sizes(const Plan& plan, int64_t tokens);

/// Queues the whole pass on `stream`. `workspace` is a block of device memory laid out by
/// WorkspaceLayout(shape), its input filled by fill_batch(). `output`, fp32, gets logits [markers]
/// and then action logits [rows, actions]; padding's may be left out. It is memory of
/// Device::allocate_host(), which the last kernels write themselves, since the start of a copy from
/// the device takes longer than they do; complete once the stream is synchronized.
Result<void> run_forward(const ForwardModel& model, const ShapeClass& shape, std::byte* workspace,
                         float* output, jit::Stream& stream);

}  // namespace laya::model
