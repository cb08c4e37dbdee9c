// Synthetic checkpoints: the exact layout, names and shapes of a real one with seeded random
// weights, for tests, benchmarks and trying things out without a download.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "cache/result.h"
#include "model/config.h"

namespace laya::model {

struct SyntheticOptions {
  uint64_t seed = 0;
  /// Called now and then with bytes written so far and in all.
  std::function<void(int64_t done, int64_t total)> on_progress = {};
};

/// Writes rl_agent_config.json, encoder/config.json and model.safetensors (F16) to `directory`,
/// which is created; files of these names are replaced. The same config and seed give the same
/// bytes on every machine. Weights are scaled so that activations keep their size through the
/// layers and probabilities are spread out. Needs a few MB of memory whatever the size of the
/// model. kBadInput: a file cannot be written (names it and the reason); the config breaks a limit
/// that read_config() checks.
Result<void> write_synthetic_checkpoint(const std::filesystem::path& directory,
                                        const Config& config, const SyntheticOptions& options);

}  // namespace laya::model
