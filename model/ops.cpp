#include "model/ops.h"

#include "model/tiles.h"

namespace laya::model {
namespace {

const char* to_word(Activation act) {
  switch (act) {
    case Activation::kNone: return "none";
    case Activation::kRelu: return "relu";
    case Activation::kGelu: return "gelu";
  }
  return "none";
}

Op with_tiles(const jit::KernelSpec& base, Use use = Use::kOften) {
  const bool is_cuda = base.target().backend == jit::Backend::kCuda;
  Op op;
  for (const Tile& tile : is_cuda ? cuda_tiles(base, use) : cpu_tiles(base)) {
    op.variants.push_back(with_tile(base, tile));
  }
  return op;
}

}  // namespace

DType residual_dtype(const jit::Target& target, DType compute) {
  return target.backend == jit::Backend::kCpu ? DType::kF32 : compute;
}

Op embed_norm_op(const jit::Target& target, DType table, DType dtype, int64_t hidden) {
  return with_tiles(jit::KernelSpec("embed_norm", target)
                        .set("E", to_string(table))
                        .set("T", to_string(dtype))
                        .set("D", hidden));
}

Op gemm_op(const jit::Target& target, DType dtype, int64_t n, int64_t k, Activation act, Use use) {
  return with_tiles(jit::KernelSpec("gemm", target)
                        .set("T", to_string(dtype))
                        .set("N", n)
                        .set("K", k)
                        .set("ACT", to_word(act)),
                    use);
}

Op gemm_residual_op(const jit::Target& target, DType dtype, int64_t n, int64_t k, Use use) {
  return with_tiles(
      jit::KernelSpec("gemm_residual", target).set("T", to_string(dtype)).set("N", n).set("K", k),
      use);
}

Op gemm_geglu_op(const jit::Target& target, DType dtype, int64_t n, int64_t k) {
  return with_tiles(
      jit::KernelSpec("gemm_geglu", target).set("T", to_string(dtype)).set("N", n).set("K", k));
}

Op gemm_rope_op(const jit::Target& target, DType dtype, int64_t heads, int64_t head_dim,
                int64_t k) {
  if (target.backend != jit::Backend::kCuda) return {};
  return with_tiles(jit::KernelSpec("gemm_rope", target)
                        .set("T", to_string(dtype))
                        .set("HEADS", heads)
                        .set("HEAD_DIM", head_dim)
                        .set("K", k));
}

Op layer_norm_op(const jit::Target& target, DType out, int64_t hidden) {
  return with_tiles(
      jit::KernelSpec("layer_norm", target).set("O", to_string(out)).set("D", hidden));
}

Op row_scales_op(const jit::Target& target, DType dtype, int64_t hidden) {
  return with_tiles(
      jit::KernelSpec("row_scales", target).set("T", to_string(dtype)).set("D", hidden));
}

Op final_norm_op(const jit::Target& target, DType dtype, int64_t hidden) {
  return with_tiles(
      jit::KernelSpec("final_norm", target).set("T", to_string(dtype)).set("D", hidden));
}

Op rope_op(const jit::Target& target, DType dtype, int64_t heads, int64_t head_dim) {
  return with_tiles(jit::KernelSpec("rope", target)
                        .set("T", to_string(dtype))
                        .set("HEADS", heads)
                        .set("HEAD_DIM", head_dim));
}

Op attention_op(const jit::Target& target, DType dtype, int64_t heads, int64_t head_dim,
                int64_t window) {
  return with_tiles(jit::KernelSpec("attention", target)
                        .set("T", to_string(dtype))
                        .set("HEADS", heads)
                        .set("HEAD_DIM", head_dim)
                        .set("WINDOW", window));
}

Op gather_rows_op(const jit::Target& target, DType dtype, int64_t hidden) {
  return with_tiles(
      jit::KernelSpec("gather_rows", target).set("T", to_string(dtype)).set("D", hidden));
}

Op decision_hidden_op(const jit::Target& target, DType dtype, int64_t hidden,
                      int64_t hidden_units) {
  return with_tiles(jit::KernelSpec("decision_hidden", target)
                        .set("T", to_string(dtype))
                        .set("D", hidden)
                        .set("UNITS", hidden_units));
}

Op decision_op(const jit::Target& target, int64_t hidden, int64_t hidden_units, int64_t actions) {
  return with_tiles(jit::KernelSpec("decision", target)
                        .set("D", hidden)
                        .set("UNITS", hidden_units)
                        .set("ACTIONS", actions));
}

Op score_op(const jit::Target& target, int64_t hidden) {
  return with_tiles(jit::KernelSpec("score", target).set("D", hidden));
}

Op action_head_op(const jit::Target& target, int64_t hidden, int64_t hidden_units,
                  int64_t actions) {
  return with_tiles(jit::KernelSpec("action_head", target)
                        .set("D", hidden)
                        .set("UNITS", hidden_units)
                        .set("ACTIONS", actions));
}

}  // namespace laya::model
