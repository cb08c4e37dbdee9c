// The GPU's part of `laya bench kernels`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/result.h"
#include "jit/device.h"
#include "jit/engine.h"
#include "model/dtype.h"
#include "tools/bench.h"

namespace laya::tools {

struct CudaKernelBench {
  std::vector<std::string> presets{"base", "large"};  ///< whose kernels
  std::vector<int64_t> rows{64, 128, 256, 512, 1024, 2048, 4096, 32768};
  model::DType dtype = model::DType::kBF16;
  std::vector<std::string> kernels;  ///< names, see cuda_kernel_names(); empty: all
  int rounds = 9;                    ///< each measures every implementation in turn
  int candidates = 0;                ///< of tiles to measure for each product beside the chosen one
  bool tune = false;  ///< keep the fastest tiles in the cache, see model/tuned_tiles.h
};

/// The names of what bench_cuda_kernels() can measure.
const std::vector<std::string>& cuda_kernel_names();

/// Every kernel of the model: matrix products and attention in TFLOP/s, the former beside cuBLASLt
/// (opened at run time; without it figures have no reference), the others in GB/s beside the copy
/// bandwidth that was measured first. Figures named KERNEL/ceiling have the best rate that cuBLASLt
/// reached in this run as their reference, gemm_residual/adding cuBLASLt that adds to an fp32
/// matrix of as many bytes. kInternal: our result and cuBLASLt's differ by more than rounding.
/// kStoreError: the tuned tiles could not be kept.
Result<std::vector<Figure>> bench_cuda_kernels(std::shared_ptr<jit::Device> device,
                                               std::shared_ptr<jit::Engine> engine,
                                               const CudaKernelBench& options);

}  // namespace laya::tools
