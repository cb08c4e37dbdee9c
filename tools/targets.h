// Which model, for which processors, in which dtypes: the arguments that several commands share.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "jit/engine.h"
#include "jit/target.h"
#include "model/config.h"
#include "model/dtype.h"
#include "model/plan.h"

namespace laya::tools {

/// A checkpoint directory or the name of a preset; one of the two.
struct ModelChoice {
  std::filesystem::path directory;
  std::string preset;
};

/// What decides the kernels of a model, apart from the target.
struct ModelShape {
  model::Config config;
  model::DType table = model::DType::kF16;  ///< of the embedding table; F16 in every preset
};

/// Reads no weights. kBadInput where neither or both are given, or what is given is wrong.
Result<ModelShape> shape_of(const ModelChoice& choice);

struct TargetDType {
  jit::Target target;
  model::DType dtype;
};

/// Every pair of the two lists; `dtypes` empty: model::default_dtype() of each target.
/// With more than one dtype, pairs that do not exist are left out and noted on stderr, as long as
/// each target keeps one. kBadInput names the word that is wrong.
Result<std::vector<TargetDType>> parse_target_dtypes(const std::vector<std::string>& targets,
                                                     const std::vector<std::string>& dtypes);

/// The plans of a model for every pair of targets and dtypes. Errors as above.
Result<std::vector<model::Plan>> plans_of(const ModelChoice& choice,
                                          const std::vector<std::string>& targets,
                                          const std::vector<std::string>& dtypes);
/// The kernels of all plans, each once, with the tiles that were tuned in the cache.
std::vector<jit::KernelSpec> specs_of(const std::vector<model::Plan>& plans, jit::Engine& engine);

}  // namespace laya::tools
