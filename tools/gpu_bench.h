// What the GPU's kernel benchmarks stand on: a device with random data in its memory, and kernels
// timed in turn, so that all of them see the same clocks and temperatures.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jit/engine.h"
#include "model/dtype.h"
#include "model/op.h"
#include "tools/bench.h"
#include "tools/cublas_lt.h"

namespace laya::tools {

/// Queues one run on the set of buffers number `set`.
using QueueRun = std::function<Result<void>(size_t set)>;

class GpuBench {
 public:
  /// kUnavailable, kDeviceError: no such GPU, or not enough memory on it.
  static Result<std::unique_ptr<GpuBench>> create(std::shared_ptr<jit::Device> device,
                                                  std::shared_ptr<jit::Engine> engine,
                                                  model::DType dtype, int rounds);

  jit::Device& device() const { return *device_; }
  jit::Stream& stream() const { return *stream_; }
  jit::Engine& engine() const { return *engine_; }
  model::DType dtype() const { return dtype_; }
  /// Empty where cuBLASLt is not installed.
  const std::optional<CublasLt>& blas() const { return blas_; }

  // Memory by number of set. Sets differ, so that data comes from where it comes from in a model
  // and not from the L2 cache, as far as there is memory for more than one.
  void* activations(size_t set, size_t bytes) const;   ///< N(0, 1) in the dtype
  void* weights(size_t set, size_t bytes) const;       ///< N(0, 1/32^2) in the dtype
  void* floats(size_t set, size_t bytes) const;        ///< N(0, 1) in fp32
  void* results(size_t set, size_t bytes) const;       ///< to be written
  void* more_results(size_t set, size_t bytes) const;  ///< of a kernel with two results
  /// Both parts of a residual stream, of `bytes` each: N(0, 1) in the dtype.
  std::pair<void*, void*> residual(size_t set, size_t bytes) const;
  /// 32-bit integers copied to the device; kept until the bench ends.
  Result<void*> integers(const std::vector<int32_t>& values);

  /// Microseconds of one run of each, measured in turn in every round: a graph of as many runs as
  /// take about a millisecond. `bytes`: what one run touches.
  Result<std::vector<Samples>> time_us(const std::vector<QueueRun>& runs, size_t bytes);

  /// Launches `variant` over `rows` rows.
  template <class... Args>
  Result<void> launch(const model::Variant& variant, int64_t rows, const Args&... args) const {
    LAYA_ASSIGN(const auto kernel, engine_->kernel(variant.spec));
    return kernel->launch(*stream_, variant.rule.shape(rows), args...);
  }

  /// more_results = activations * weights^T by cuBLASLt, where blas() is there. kDeviceError: it
  /// has no algorithm.
  Result<QueueRun> blas_run(int64_t rows, int64_t n, int64_t k) const;
  /// The same product added to results, a matrix of fp32.
  Result<QueueRun> blas_add(int64_t rows, int64_t n, int64_t k) const;

  Result<void> copy_back(void* host, const void* device, size_t bytes) const;

 private:
  struct Arena {
    jit::Buffer buffer;
    void* at(size_t set, size_t bytes) const;
  };

  GpuBench() = default;
  Result<Arena> random_arena(size_t bytes, float scale, model::DType dtype, uint64_t seed) const;
  Result<QueueRun> blas_product(int64_t rows, int64_t n, int64_t k, bool adds) const;
  Result<std::unique_ptr<jit::Graph>> record(const QueueRun& run, int count, size_t sets) const;

  std::shared_ptr<jit::Device> device_;
  std::shared_ptr<jit::Engine> engine_;
  std::unique_ptr<jit::Stream> stream_;
  model::DType dtype_ = model::DType::kBF16;
  int rounds_ = 9;
  Arena activations_, weights_, residuals_, floats_, results_, more_results_;
  std::vector<jit::Buffer> integers_;
  jit::Buffer blas_workspace_;
  std::optional<CublasLt> blas_;
};

}  // namespace laya::tools
