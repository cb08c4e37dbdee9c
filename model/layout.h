// The tensors of a checkpoint: names, shapes and order, as a pure function of the configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace laya::model {

/// What a tensor is for; decides how a synthetic checkpoint fills it.
enum class TensorRole : uint8_t {
  kEmbedding,    ///< a lookup table
  kMatrix,       ///< [outputs, inputs] of a linear layer
  kNormWeight,   ///< around 1
  kBias,         ///< around 0
  kTemperature,  ///< stored, but the JSON file's values are what counts
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  TensorRole role;
};

/// Every tensor of model.safetensors: all of them must be there, and no other.
std::vector<TensorSpec> tensor_layout(const Config& config);

}  // namespace laya::model
