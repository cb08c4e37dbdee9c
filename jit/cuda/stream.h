// A queue of work on one GPU, and recordings of such work.
#pragma once

#include <memory>
#include <vector>

#include "jit/cuda/device.h"

namespace laya::jit::cuda {

/// Shares the code of the kernels that it launches.
class CudaGraph final : public Graph {
 public:
  CudaGraph(GraphExec exec, std::vector<std::shared_ptr<const void>> code)
      : code_(std::move(code)), exec_(std::move(exec)) {}

  CUgraphExec_st* exec() const { return exec_.get(); }

 private:
  std::vector<std::shared_ptr<const void>> code_;
  GraphExec exec_;  // destroyed before the code that it refers to
};

class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<CudaDevice> device, StreamHandle stream)
      : device_(std::move(device)), stream_(std::move(stream)) {}
  ~CudaStream() override;

  Device& device() const override { return *device_; }
  Result<void> synchronize() override;
  Result<void> begin_capture() override;
  Result<std::unique_ptr<Graph>> end_capture() override;
  Result<void> launch(Graph& graph) override;
  Result<void> copy_to_device(void* device_dst, const void* host_src, size_t bytes) override;
  Result<void> copy_to_host(void* host_dst, const void* device_src, size_t bytes) override;
  Result<void> fill(void* device_dst, uint8_t value, size_t bytes) override;
  Result<double> time_ms(const std::function<Result<void>()>& work) override;

  CudaDevice& cuda_device() const { return *device_; }
  CUstream_st* handle() const { return stream_.get(); }
  /// Called for each launch: a recording keeps the code of its kernels alive.
  void note_launch(const std::shared_ptr<const void>& code) {
    if (is_capturing_) recorded_code_.push_back(code);
  }

 private:
  const Driver& driver() const { return device_->driver(); }
  CUctx_st* context() const { return device_->context(); }
  Result<void> make_events();

  std::shared_ptr<CudaDevice> device_;
  StreamHandle stream_;
  Event start_, end_;  // of time_ms(); made on its first call
  std::vector<std::shared_ptr<const void>> recorded_code_;
  bool is_capturing_ = false;
};

}  // namespace laya::jit::cuda
