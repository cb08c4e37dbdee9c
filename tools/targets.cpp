#include "tools/targets.h"

#include "model/checkpoint.h"
#include "model/plan.h"
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

model::DType default_dtype(const jit::Target& target) {
  return target.backend == jit::Backend::kCpu ? model::DType::kF32 : model::DType::kF16;
}

Result<std::vector<TargetDType>> parse_target_dtypes(const std::vector<std::string>& targets,
                                                     const std::vector<std::string>& dtypes) {
  LAYA_ASSIGN(const std::vector<model::DType> wanted, parse_dtypes(dtypes));
  std::vector<TargetDType> pairs;
  for (const std::string& word : targets) {
    LAYA_ASSIGN(const jit::Target target, jit::parse_target(word));
    if (wanted.empty()) pairs.push_back({target, default_dtype(target)});
    Result<void> last_refusal;
    bool has_one = wanted.empty();
    for (const model::DType dtype : wanted) {
      if (const Result<void> allowed = model::check_precision(dtype, target); allowed) {
        pairs.push_back({target, dtype});
        has_one = true;
      } else {
        last_refusal = allowed;
      }
    }
    if (!has_one) return tl::make_unexpected(last_refusal.error());
    if (!last_refusal) note("left out: " + last_refusal.error().message);
  }
  return pairs;
}

}  // namespace laya::tools
