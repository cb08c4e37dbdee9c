// Which model, for which processors, in which dtypes: the arguments that several commands share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cache/result.h"
#include "jit/target.h"
#include "model/config.h"
#include "model/dtype.h"

namespace laya::tools {

/// A checkpoint directory or the name of a preset; one of the two.
struct ModelChoice {
  std::filesystem::path directory;
  std::string preset;
};

/// The configuration of the chosen model. kBadInput where none or both are given.
Result<model::Config> config_of(const ModelChoice& choice);

struct TargetDType {
  jit::Target target;
  model::DType dtype;
};

/// The dtype that a target computes in unless told otherwise: fp32 on the CPU, bf16 on GPUs that
/// have it (compute capability 8.0), fp16 on older ones.
model::DType default_dtype(const jit::Target& target);

/// kBadInput where kernels for the pair do not exist: the CPU computes in fp32 only, and bf16 needs
/// compute capability 8.0.
Result<void> check_dtype(const jit::Target& target, model::DType dtype);

/// Every pair of the two comma-separated lists; `dtypes` empty: default_dtype() of each target.
/// With more than one dtype, pairs that do not exist are left out and noted on stderr, as long as
/// each target keeps one. kBadInput names the word that is wrong.
Result<std::vector<TargetDType>> parse_target_dtypes(const std::vector<std::string>& targets,
                                                     const std::vector<std::string>& dtypes);

}  // namespace laya::tools
