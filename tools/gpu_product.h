// A matrix product on the GPU with the inputs that a model gives it, and what should come of it.
#pragma once

#include <cstdint>
#include <vector>

#include "model/op.h"
#include "tools/gpu_bench.h"
#include "tools/product_cases.h"

namespace laya::tools {

class GpuProduct {
 public:
  /// `rows` of a. Copies to the device what the product reads beside the bench's own data, which
  /// stays there until the bench ends.
  static Result<GpuProduct> create(GpuBench& gpu, const ProductCase& product, int64_t rows);

  /// Queues one run on the set of buffers number `set`. `variant`: of the product.
  Result<void> launch(const model::Variant& variant, size_t set) const;

  /// Runs `variant` and compares its first rows with those of cuBLASLt, `blas`
  /// (GpuBench::blas_run() of the same shape), with the epilogue done here. Rotation is left to the
  /// tests. kInternal: they differ by more than rounding.
  Result<void> check(const model::Variant& variant, const QueueRun& blas) const;

 private:
  GpuProduct(GpuBench& gpu, const ProductCase& product, int64_t rows)
      : gpu_(&gpu), product_(product), rows_(rows) {}

  size_t out_bytes() const { return static_cast<size_t>(rows_ * product_.n * 2); }
  bool is_residual() const { return product_.epilogue == Epilogue::kResidual; }
  double expected(const std::vector<float>& blas, const std::vector<float>& bias, int64_t row,
                  int64_t column) const;

  /// The first `count` numbers of an array, of what a launch on set 0 leaves.
  Result<std::vector<float>> read_floats(const void* data, int64_t count) const;
  Result<std::vector<uint16_t>> read_bits(const void* data, int64_t count) const;
  Result<std::vector<float>> read_elements(const void* data, int64_t count) const;
  Result<std::vector<float>> read_results(int64_t count) const;

  GpuBench* gpu_;
  ProductCase product_;
  int64_t rows_;
  void* positions_ = nullptr;
  void* scales_ = nullptr;  ///< null where a product derives them from moments
  void* moments_ = nullptr;
};

}  // namespace laya::tools
