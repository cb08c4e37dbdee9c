// The plan: every operation of a model's forward pass, by name. What the warm tool compiles and
// what the forward pass launches are both this list.
#pragma once

#include <vector>

#include "jit/target.h"
#include "model/config.h"
#include "model/op.h"
#include "model/ops.h"

namespace laya::model {

/// Dtypes that a model runs with.
struct Precision {
  DType table = DType::kF16;    ///< of the embedding table: the checkpoint's
  DType compute = DType::kF32;  ///< of matrices and activations; sums and norms are fp32 anyway
};

/// A matrix of the model: the product that uses it and, on the CPU, the kernel that packs it.
struct MatrixOp {
  Op multiply;
  Op pack;                       ///< no variants on a GPU, which reads the matrix as it is
  int64_t rows = 0;              ///< of the matrix in the checkpoint
  int64_t columns = 0;           ///< of the matrix in the checkpoint
  int64_t pack_rows = 0;         ///< rows that `pack` is launched over
  int64_t stored_elements = 0;   ///< as the product reads it: packed on the CPU
  DType dtype = DType::kF32;     ///< as the product reads it
  int64_t interleaved_rows = 0;  ///< first rows: heads whose halves the product wants interleaved
};

/// A pure function of what a model is and where it runs; holds no weights and needs no device.
struct Plan {
  Precision precision;
  jit::Target target;

  Op embed_norm;
  Op rope;                     ///< no variants where qkv rotates, too
  Op full_attention;           ///< also of the decision head
  Op sliding_attention;        ///< no variants if every layer is full
  Op norm;                     ///< no variants where norms are folded
  Op row_scales;               ///< no variants where they are not
  MatrixOp qkv, mlp_in;        ///< of the normalized residual stream
  MatrixOp attn_out, mlp_out;  ///< add to it; attn_out also of the decision head
  Op final_norm;

  Op gather_rows;
  MatrixOp head_qkv, head_mlp_in, head_mlp_out;
  Op decision_hidden, decision;        ///< no variants on the CPU
  MatrixOp scorer_hidden;              ///< no product of its own on GPUs: part of decision_hidden
  Op scorer_norm, score, action_head;  ///< no variants on GPUs

  /// Whether the products of the normalized residual stream normalize it themselves, with the
  /// norm's weight and bias folded into their own (fold_norm.h): on GPUs.
  bool folds_norms() const { return norm.variants.empty(); }

  std::vector<const Op*> ops() const;
  /// The distinct kernels of ops(), those that take longest to compile first: several threads that
  /// take them in turn then end together.
  std::vector<jit::KernelSpec> specs() const;
};

/// Precondition: the target's processor has `precision.compute` (see check_precision()).
Plan make_plan(const Config& config, Precision precision, const jit::Target& target);

/// What a model computes in unless told otherwise, the closest to fp32 that is fast: fp16 on a GPU,
/// fp32 on the CPU.
DType default_dtype(const jit::Target& target);

/// kBadInput where a target cannot compute in a dtype, with those it can: CPU fp32 and bf16;
/// CUDA fp32, fp16 and, from compute capability 8.0, bf16.
Result<void> check_precision(DType compute, const jit::Target& target);

}  // namespace laya::model
