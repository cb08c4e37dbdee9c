#include "tools/targets.h"

#include <algorithm>

#include "model/checkpoint.h"
#include "model/tuned_tiles.h"
#include "tools/console.h"

namespace laya::tools {
namespace {

Result<std::vector<model::DType>> parse_dtypes(const std::vector<std::string>& words) {
  std::vector<model::DType> dtypes;
  for (const std::string& word : words) {
    LAYA_ASSIGN(const model::DType dtype, model::parse_dtype(word));
    dtypes.push_back(dtype);
  }
  return dtypes;
}

/// Adds the pairs of `target` that exist; an error if there is none.
Result<void> add_pairs(const jit::Target& target, const std::vector<model::DType>& wanted,
                       std::vector<TargetDType>& pairs) {
  Result<void> refusal;
  std::string left_out;
  for (const model::DType dtype : wanted) {
    if (const Result<void> allowed = model::check_precision(dtype, target); allowed) {
      pairs.push_back({target, dtype});
    } else {
      refusal = allowed;
      left_out += std::string(" ") + model::to_string(dtype);
    }
  }
  const bool has_none = pairs.empty() || pairs.back().target != target;
  if (has_none) return refusal;
  if (!left_out.empty()) note("left out for " + without_features(target.name) + ":" + left_out);
  return {};
}

}  // namespace

Result<ModelShape> shape_of(const ModelChoice& choice) {
  if (choice.directory.empty() == choice.preset.empty()) {
    return fail(ErrorKind::kBadInput, "give either --model or --preset");
  }
  if (!choice.preset.empty()) {
    LAYA_ASSIGN(const model::Config config, model::preset_config(choice.preset));
    return ModelShape{config};
  }
  LAYA_ASSIGN(const model::Checkpoint checkpoint, model::open_checkpoint(choice.directory));
  return ModelShape{checkpoint.config, checkpoint.table_dtype()};
}

Result<std::vector<TargetDType>> parse_target_dtypes(const std::vector<std::string>& targets,
                                                     const std::vector<std::string>& dtypes) {
  LAYA_ASSIGN(const std::vector<model::DType> wanted, parse_dtypes(dtypes));
  std::vector<TargetDType> pairs;
  for (const std::string& word : targets) {
    LAYA_ASSIGN(const jit::Target target, jit::parse_target(word));
    if (wanted.empty()) {
      pairs.push_back({target, model::default_dtype(target)});
    } else {
      LAYA_TRY(add_pairs(target, wanted, pairs));
    }
  }
  return pairs;
}

Result<std::vector<model::Plan>> plans_of(const ModelChoice& choice,
                                          const std::vector<std::string>& targets,
                                          const std::vector<std::string>& dtypes) {
  LAYA_ASSIGN(const ModelShape shape, shape_of(choice));
  LAYA_ASSIGN(const std::vector<TargetDType> pairs, parse_target_dtypes(targets, dtypes));
  std::vector<model::Plan> plans;
  for (const TargetDType& pair : pairs) {
    plans.push_back(model::make_plan(shape.config, {shape.table, pair.dtype}, pair.target));
  }
  return plans;
}

std::vector<jit::KernelSpec> specs_of(const std::vector<model::Plan>& plans, jit::Engine& engine) {
  std::vector<jit::KernelSpec> specs;
  for (const model::Plan& plan : plans) {
    const model::Plan tuned = model::with_tuned_tiles(plan, engine.store(), &engine.layers());
    for (jit::KernelSpec& spec : tuned.specs()) {
      if (std::find(specs.begin(), specs.end(), spec) == specs.end()) {
        specs.push_back(std::move(spec));
      }
    }
  }
  return specs;
}

}  // namespace laya::tools
