// The shape of a model: what rl_agent_config.json and encoder/config.json say, checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "cache/result.h"

namespace laya::model {

/// Hidden units of the action head; the same in every checkpoint.
inline constexpr int64_t kActionUnits = 256;
/// Confidence features that the action head gets beside the CLS row.
inline constexpr int64_t kActionFeatures = 4;
/// Question types: choice 0, score 1, noul 2.
inline constexpr int64_t kQuestionTypes = 3;
/// Elements of one attention head, in the encoder and in the decision head.
inline constexpr int64_t kHeadDim = 64;

/// Added to the variance in every norm.
inline constexpr float kNormEps = 1e-5F;

/// A value; what two models have in common if they can run the same kernels.
struct Config {
  // Encoder.
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;        ///< D, a multiple of kHeadDim
  int64_t intermediate_size = 0;  ///< columns of each half of the GeGLU
  int64_t max_positions = 0;      ///< longest row in tokens
  int64_t window = 0;             ///< a sliding layer sees keys with |i - j| <= window
  std::vector<bool> sliding;      ///< one per layer: sliding window (true) or full attention
  double full_theta = 0;          ///< RoPE base of full layers
  double sliding_theta = 0;       ///< RoPE base of sliding layers

  // Decision head.
  int64_t head_layers = 0;
  int64_t actions = 0;  ///< columns of the action logits

  int64_t layers() const { return static_cast<int64_t>(sliding.size()); }
  int64_t heads() const { return hidden_size / kHeadDim; }

  bool operator==(const Config&) const = default;
};

/// Full attention in layers 0, `full_every`, 2 * full_every, ...; sliding in the others.
std::vector<bool> sliding_pattern(int64_t layers, int64_t full_every);

/// "tiny" (for tests and quick starts), "base" (the multilingual checkpoint's shape) or "large"
/// (the English one's). kBadInput lists the presets.
Result<Config> preset_config(std::string_view name);

/// Reads `directory`/rl_agent_config.json and `directory`/encoder/config.json. Understands both
/// spellings of the RoPE bases (transformers 5: rope_parameters; 4: global_rope_theta).
/// kBadInput names the file, the field, its value and what is allowed.
Result<Config> read_config(const std::filesystem::path& directory);

}  // namespace laya::model
