// A model's weights on a device, in the form that the kernels read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cache/result.h"
#include "jit/device.h"
#include "jit/engine.h"
#include "model/checkpoint.h"
#include "model/plan.h"

namespace laya::model {

// Addresses on the device. Matrices are in the compute dtype (the scorer's and the action head's in
// fp32), on the CPU packed, and with heads interleaved where the plan says so; norms, biases and
// small tables are in fp32; the embedding table is in the checkpoint's dtype. Where the plan folds
// norms, those of the layers and of the scorer are null and part of the weights and biases of the
// products behind them, but for norm1 of the head's first layer.

struct NormWeights {
  const void* weight = nullptr;
  const void* bias = nullptr;
};

struct LinearWeights {
  const void* weight = nullptr;
  const void* bias = nullptr;
};

struct EncoderLayerWeights {
  NormWeights attn_norm, mlp_norm;  ///< without bias; layer 0 has no attn_norm
  LinearWeights qkv, mlp_in;        ///< without bias
  const void* attn_out = nullptr;
  const void* mlp_out = nullptr;
};

struct HeadLayerWeights {
  NormWeights norm1, norm2;
  LinearWeights qkv, attn_out, mlp_in, mlp_out;
};

/// Either cosines and sines, or, where the product behind them rotates, angles.
struct RopeTable {
  const void* cos = nullptr;  ///< [max_positions, kHeadDim / 2]
  const void* sin = nullptr;
  const void* angles = nullptr;  ///< [max_positions, kHeadDim / 2, 2] cosine and sine
};

struct Weights {
  jit::Buffer storage;  ///< owns all of it

  const void* embedding = nullptr;
  const void* embedding_norm = nullptr;
  RopeTable full_rope, sliding_rope;
  std::vector<EncoderLayerWeights> encoder;
  const void* final_norm = nullptr;
  const void* type_embedding = nullptr;
  std::vector<HeadLayerWeights> head;
  NormWeights scorer_norm;
  LinearWeights scorer_hidden, scorer_out;
  LinearWeights action_hidden, action_out;
};

/// Converts, folds, packs and copies all tensors to `device`, several at a time, and returns when
/// they are there. `before_upload` is called once, before the first call to the device. On the CPU
/// it asks `engine` for the packing kernels of the plan. kBadInput: a value of the checkpoint has
/// no finite value in the compute dtype (names the tensor). Whatever the engine and the device
/// report otherwise.
Result<Weights> load_weights(const Checkpoint& checkpoint, const Plan& plan, jit::Device& device,
                             jit::Engine& engine, const std::function<void()>& before_upload);

}  // namespace laya::model
