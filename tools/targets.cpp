#include "tools/targets.h"

#include "tools/console.h"

namespace laya::tools {
namespace {

bool has_bf16(const jit::Target& target) { return jit::compute_capability(target) >= 80; }

Result<std::vector<model::DType>> parse_dtypes(const std::vector<std::string>& words) {
  std::vector<model::DType> dtypes;
  for (const std::string& word : words) {
    LAYA_ASSIGN(const model::DType dtype, model::parse_dtype(word));
    dtypes.push_back(dtype);
  }
  return dtypes;
}

}  // namespace

Result<model::Config> config_of(const ModelChoice& choice) {
  if (choice.directory.empty() == choice.preset.empty()) {
    return fail(ErrorKind::kBadInput, "give either --model or --preset");
  }
  if (!choice.preset.empty()) return model::preset_config(choice.preset);
  return model::read_config(choice.directory);
}

model::DType default_dtype(const jit::Target& target) {
  if (target.backend == jit::Backend::kCpu) return model::DType::kF32;
  return has_bf16(target) ? model::DType::kBF16 : model::DType::kF16;
}

Result<void> check_dtype(const jit::Target& target, model::DType dtype) {
  if (target.backend == jit::Backend::kCpu && dtype != model::DType::kF32) {
    return fail(ErrorKind::kBadInput, std::string("the CPU computes in fp32 only, not in ") +
                                          model::to_string(dtype));
  }
  if (target.backend == jit::Backend::kCuda && dtype == model::DType::kBF16 && !has_bf16(target)) {
    return fail(ErrorKind::kBadInput,
                target.name + " has no bf16, which needs sm_80; use fp16 or fp32");
  }
  return {};
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
      if (const Result<void> allowed = check_dtype(target, dtype); allowed) {
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
