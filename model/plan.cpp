#include "model/plan.h"

#include <algorithm>
#include <string>

namespace laya::model {
namespace {

// Makes the operations of one model; saves naming target and dtype again and again.
class Planner {
 public:
  Planner(const jit::Target& target, DType dtype) : target_(target), dtype_(dtype) {}

  MatrixOp gemm(int64_t n, int64_t k, Activation act, Use use = Use::kOften) const {
    return matrix(gemm_op(target_, dtype_, n, k, act, use), dtype_, n, k, false);
  }
  MatrixOp residual(int64_t n, int64_t k, Use use = Use::kOften) const {
    return matrix(gemm_residual_op(target_, dtype_, n, k, use), dtype_, n, k, false);
  }
  MatrixOp geglu(int64_t n, int64_t k) const {
    return matrix(gemm_geglu_op(target_, dtype_, n, k), dtype_, n, k, true);
  }

  /// In fp32, and on GPUs part of another kernel.
  MatrixOp scorer(int64_t d) const {
    const bool is_cpu = target_.backend == jit::Backend::kCpu;
    Op multiply = is_cpu ? gemm_op(target_, DType::kF32, d, d, Activation::kGelu) : Op();
    return matrix(std::move(multiply), DType::kF32, d, d, false);
  }

 private:
  MatrixOp matrix(Op multiply, DType dtype, int64_t n, int64_t k, bool geglu) const {
    MatrixOp op{std::move(multiply), {}, geglu ? 2 * n : n, k, n, 0, dtype};
    op.stored_elements = op.rows * op.columns;
    if (target_.backend == jit::Backend::kCpu) {
      op.pack = pack_weight_op(target_, dtype, geglu);
      op.stored_elements = packed_weight_size(target_, dtype, n, k, geglu);
    }
    return op;
  }

  const jit::Target& target_;
  DType dtype_;
};

}  // namespace

Plan make_plan(const Config& config, Precision precision, const jit::Target& target) {
  const DType t = precision.compute;
  const int64_t d = config.hidden_size;
  const Planner planner(target, t);
  Plan plan;
  plan.precision = precision;
  plan.target = target;

  plan.embed_norm = embed_norm_op(target, precision.table, t, d);
  plan.full_attention = attention_op(target, t, config.heads(), kHeadDim, 0);
  if (std::find(config.sliding.begin(), config.sliding.end(), true) != config.sliding.end()) {
    plan.sliding_attention = attention_op(target, t, config.heads(), kHeadDim, config.window);
  }
  if (target.backend == jit::Backend::kCpu) {
    plan.norm = layer_norm_op(target, t, d);
  } else {
    plan.row_scales = row_scales_op(target, t, d);
  }
  plan.qkv = planner.gemm(3 * d, d, Activation::kNone);
  Op qkv_rope = gemm_rope_op(target, t, config.heads(), kHeadDim, d);
  if (qkv_rope.variants.empty()) {
    plan.rope = rope_op(target, t, config.heads(), kHeadDim);
  } else {
    plan.qkv.multiply = std::move(qkv_rope);
    plan.qkv.interleaved_rows = 2 * d;
  }
  plan.attn_out = planner.residual(d, d);
  plan.mlp_in = planner.geglu(config.intermediate_size, d);
  plan.mlp_out = planner.residual(d, config.intermediate_size);
  plan.final_norm = final_norm_op(target, t, d);

  plan.gather_rows = gather_rows_op(target, t, d);
  plan.head_qkv = planner.gemm(3 * d, d, Activation::kNone, Use::kSeldom);
  plan.head_mlp_in = planner.gemm(4 * d, d, Activation::kRelu, Use::kSeldom);
  plan.head_mlp_out = planner.residual(d, 4 * d, Use::kSeldom);
  plan.scorer_hidden = planner.scorer(d);
  if (target.backend == jit::Backend::kCpu) {
    plan.scorer_norm = layer_norm_op(target, DType::kF32, d);
    plan.score = score_op(target, d);
    plan.action_head = action_head_op(target, d, kActionUnits, config.actions);
  } else {
    plan.decision_hidden = decision_hidden_op(target, t, d, kActionUnits);
    plan.decision = decision_op(target, d, kActionUnits, config.actions);
  }
  return plan;
}

std::vector<const Op*> Plan::ops() const {
  const MatrixOp* matrices[] = {&mlp_in,   &qkv,         &mlp_out,      &attn_out,
                                &head_qkv, &head_mlp_in, &head_mlp_out, &scorer_hidden};
  std::vector<const Op*> ops = {&full_attention, &sliding_attention};
  for (const MatrixOp* matrix : matrices) ops.push_back(&matrix->multiply);
  for (const Op* op : {&decision_hidden, &decision, &action_head, &final_norm, &norm, &scorer_norm,
                       &embed_norm, &rope, &row_scales, &score, &gather_rows}) {
    ops.push_back(op);
  }
  for (const MatrixOp* matrix : matrices) ops.push_back(&matrix->pack);
  return ops;
}

std::vector<jit::KernelSpec> Plan::specs() const {
  std::vector<const Variant*> variants;
  for (const Op* op : ops()) {
    for (const Variant& variant : op->variants) variants.push_back(&variant);
  }
  std::stable_sort(variants.begin(), variants.end(),
                   [](const Variant* a, const Variant* b) { return a->code > b->code; });
  std::vector<jit::KernelSpec> specs;
  for (const Variant* variant : variants) {
    if (std::find(specs.begin(), specs.end(), variant->spec) == specs.end()) {
      specs.push_back(variant->spec);
    }
  }
  return specs;
}

DType default_dtype(const jit::Target& target) {
  return target.backend == jit::Backend::kCpu ? DType::kF32 : DType::kF16;
}

Result<void> check_precision(DType compute, const jit::Target& target) {
  const bool is_cpu = target.backend == jit::Backend::kCpu;
  const bool has_bf16 = is_cpu || jit::compute_capability(target) >= 80;
  if (compute == DType::kF32 || (!is_cpu && compute == DType::kF16) ||
      (has_bf16 && compute == DType::kBF16)) {
    return {};
  }
  return fail(ErrorKind::kBadInput, target.name + " cannot compute in " + to_string(compute) +
                                        ", allowed: fp32" + (is_cpu ? "" : ", fp16") +
                                        (has_bf16 ? ", bf16" : ""));
}

}  // namespace laya::model
