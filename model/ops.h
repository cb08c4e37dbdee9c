// The operations of the model as kernel specs: one function per template in templates/{cuda,cpu}.
// Pure functions of shapes, dtypes and target. The templates document the arguments.
#pragma once

#include <cstdint>

#include "jit/target.h"
#include "model/dtype.h"
#include "model/op.h"

namespace laya::model {

enum class Activation : uint8_t { kNone, kRelu, kGelu };  // gelu: exact, with erf

// The residual stream x is fp32 on the CPU, where x_low is null. On GPUs it is in the dtype that a
// model computes in: products read it as it is. Of 16 bits it is the upper part of a value and
// x_low the lower one (templates/cuda/residual.cuh).

/// Dtype of the residual stream of a model that computes in `compute`.
DType residual_dtype(const jit::Target& target, DType compute);

/// x = LN(table[ids]) * weight; a = x in `dtype`. `table` is the dtype of the embedding table.
Op embed_norm_op(const jit::Target& target, DType table, DType dtype, int64_t hidden);

// On GPUs gemm, gemm_rope and gemm_geglu normalize the rows of a if given moments of them, as
// gemm_residual leaves them, or scales, as row_scales makes of these; w is then as fold_norm.h
// makes it. On the CPU layer_norm comes before.

/// From so many rows on row_scales pays: blocks of products have so many tiles that each row's
/// moments are better looked at once.
inline constexpr int64_t kRowScalesFrom = 4096;

/// out = act(a * w^T + bias); a, w and out in `dtype`, bias in fp32 or null, accumulated in fp32.
Op gemm_op(const jit::Target& target, DType dtype, int64_t n, int64_t k, Activation act,
           Use use = Use::kOften);

/// out = gelu(a * u^T) * (a * g^T) with w = [u; g]; out has n columns, w has 2n rows.
Op gemm_geglu_op(const jit::Target& target, DType dtype, int64_t n, int64_t k);

/// x += a * w^T + bias for a residual stream x; bias may be null. On GPUs n is a multiple of 32,
/// and moments of the rows of x are written, too.
Op gemm_residual_op(const jit::Target& target, DType dtype, int64_t n, int64_t k,
                    Use use = Use::kOften);

/// qkv = a * w^T with rotary position embedding on q and k: gemm and rope in one. Heads of q and k
/// have their halves interleaved, in w and in qkv. No variants where a target or dtype has no such
/// kernel.
Op gemm_rope_op(const jit::Target& target, DType dtype, int64_t heads, int64_t head_dim, int64_t k);

/// CPU only: out = LN(x) * weight + bias for an fp32 residual stream x; bias may be null.
Op layer_norm_op(const jit::Target& target, DType out, int64_t hidden);

/// GPUs only: what the rows of x have to be multiplied by, from their moments.
Op row_scales_op(const jit::Target& target, DType dtype, int64_t hidden);

/// x = LN(x) * weight + type_table[type]; out = LN(x) * norm_weight + norm_bias.
Op final_norm_op(const jit::Target& target, DType dtype, int64_t hidden);

/// Rotates q and k of packed qkv in place (rotate-half).
Op rope_op(const jit::Target& target, DType dtype, int64_t heads, int64_t head_dim);

/// Bidirectional attention over packed sequences; `window` 0: full, else only keys with
/// |i - j| <= window. Launched over tiles of rule.rows_per_block queries of one sequence each:
/// pass rows = rows_per_block * number of tiles to LaunchRule::shape().
Op attention_op(const jit::Target& target, DType dtype, int64_t heads, int64_t head_dim,
                int64_t window);

/// Copies chosen rows of an activation (`dtype`) and of the residual stream.
Op gather_rows_op(const jit::Target& target, DType dtype, int64_t hidden);

// The decision on top of the last layer: the scorer's logits and, from these and the first token of
// each row, the action head's, all in fp32 but the residual stream of dtype `x`. On GPUs two
// kernels do all of it.

/// GPUs only: the hidden layers of both, each over its own rows of a residual stream of a model
/// that computes in `dtype`; the scorer's are normalized in the same way as those of gemm.
Op decision_hidden_op(const jit::Target& target, DType dtype, int64_t hidden, int64_t hidden_units);

/// GPUs only: option logits, the confidence features of each row's, and the action head's last
/// layer.
Op decision_op(const jit::Target& target, int64_t hidden, int64_t hidden_units, int64_t actions);

/// CPU only: logits = h * weight + bias, one dot product per row, all fp32.
Op score_op(const jit::Target& target, int64_t hidden);

/// CPU only: confidence features of each row's option logits and the action head on top.
Op action_head_op(const jit::Target& target, int64_t hidden, int64_t hidden_units, int64_t actions);

/// CPU only: rewrites a weight [n, k] into the panel layout that the CPU's gemm reads; `geglu`: a
/// weight [2n, k] of gemm_geglu. One kernel for every n and k; launched over n rows.
Op pack_weight_op(const jit::Target& target, DType dtype, bool geglu);
/// Elements of the packed weight: n (geglu: 2n) rounded up to whole panels, times k.
int64_t packed_weight_size(const jit::Target& target, DType dtype, int64_t n, int64_t k,
                           bool geglu);

}  // namespace laya::model
