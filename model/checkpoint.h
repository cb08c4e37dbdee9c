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

  /// Of the embedding table, which is kept as it is: a Plan depends on it.
  DType table_dtype() const { return tensor("encoder.embeddings.tok_embeddings.weight").dtype; }
};

/// Reads rl_agent_config.json, encoder/config.json and the header of model.safetensors.
/// kBadInput where a file is missing or wrong, or where tensors are missing, unknown or of another
/// shape than the configuration says: all are counted and the first five are named.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& directory);

}  // namespace laya::model
