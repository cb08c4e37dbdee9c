#include "tools/product_cases.h"

#include "model/tiles.h"

namespace laya::tools {

using model::Activation, model::DType, model::kHeadDim;

const char* ProductCase::name() const {
  static constexpr const char* kNames[] = {"gemm+bias", "gemm+bias+relu", "gemm_rope", "gemm_geglu",
                                           "gemm_residual"};
  return kNames[static_cast<int>(epilogue)];
}

model::Op ProductCase::op(const jit::Target& target, DType dtype) const {
  switch (epilogue) {
    case Epilogue::kRope:
      return model::gemm_rope_op(target, dtype, n / (3 * kHeadDim), kHeadDim, k);
    case Epilogue::kGeglu: return model::gemm_geglu_op(target, dtype, n, k);
    case Epilogue::kResidual: return model::gemm_residual_op(target, dtype, n, k, use);
    case Epilogue::kBias: return model::gemm_op(target, dtype, n, k, Activation::kNone, use);
    case Epilogue::kBiasRelu: break;
  }
  return model::gemm_op(target, dtype, n, k, Activation::kRelu, use);
}

std::set<ProductCase> products_of(const std::vector<model::Config>& configs) {
  std::set<ProductCase> cases;
  for (const model::Config& config : configs) {
    const int64_t d = config.hidden_size, f = config.intermediate_size;
    cases.insert({{Epilogue::kRope, 3 * d, d},
                  {Epilogue::kResidual, d, d, model::Use::kOften},
                  {Epilogue::kGeglu, f, d},
                  {Epilogue::kResidual, d, f, model::Use::kOften},
                  {Epilogue::kBias, 3 * d, d},
                  {Epilogue::kBiasRelu, 4 * d, d},
                  {Epilogue::kResidual, d, 4 * d}});
  }
  return cases;
}

std::string tile_text(const model::Variant& variant) {
  if (!variant.spec.template_name().ends_with("_sm90")) return "";
  std::string text;
  for (const char* name : {"BM", "BN", "CLUSTER", "CONSUMERS", "STAGES"}) {
    text += (text.empty() ? " tile " : ",") + std::to_string(model::int_param(variant.spec, name));
  }
  if (model::word_param(variant.spec, "SHARED") == "yes") text += ",shared";
  const std::string& name = variant.spec.template_name();
  const bool can_split = name == "gemm_sm90" || name == "gemm_residual_sm90";
  const int64_t split = can_split ? model::int_param(variant.spec, "SPLIT") : 1;
  if (split > 1) text += ",split" + std::to_string(split);
  const bool has_x_ring =
      name == "gemm_residual_sm90" && model::word_param(variant.spec, "X_RING") == "yes";
  return text + (has_x_ring ? ",x_ring" : "");
}

}  // namespace laya::tools
