// A checkpoint directory: configuration and tensors, checked against each other.
#pragma once

#include <filesystem>

#include "cache/result.h"
#include "model/config.h"
#include "model/safetensors.h"

namespace laya::model {

struct Checkpoint {
  Config config;
  SafetensorsFile weights;

  /// A tensor that tensor_layout(config) names, and so exists.
  const Tensor& tensor(std::string_view name) const { return *weights.find(name); }
};

/// Reads rl_agent_config.json, encoder/config.json and the header of model.safetensors.
/// kBadInput where a file is missing or wrong, or where tensors are missing, unknown or of another
/// shape than the configuration says: all are counted and the first five are named.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& directory);

}  // namespace laya::model
