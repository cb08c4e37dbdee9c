// A GPU of this process, behind the interface of jit/device.h.
#pragma once

#include <memory>
#include <vector>

#include "jit/cuda/driver.h"
#include "jit/device.h"

namespace laya::jit::cuda {

/// GPUs beyond this number are refused: kernels keep a small state for each.
inline constexpr int kMaxDevices = 64;

class CudaDevice final : public Device {
 public:
  /// Use open_cuda_device(), which keeps one per ordinal.
  static Result<std::shared_ptr<CudaDevice>> open(const Driver& driver, int ordinal);

  CudaDevice(const Driver& driver, int ordinal, DeviceInfo info, CUctx_st* context);

  const Target& target() const override { return target_; }
  const std::string& name() const override { return info_.name; }
  bool has_graphs() const override { return true; }
  int processor_count() const override { return info_.processors; }
  Result<Buffer> allocate(size_t bytes) override;
  Result<Buffer> allocate_host(size_t bytes) override;
  Result<std::unique_ptr<Stream>> create_stream() override;

  const Driver& driver() const { return driver_; }
  CUctx_st* context() const { return context_; }
  int ordinal() const { return ordinal_; }
  const DeviceInfo& info() const { return info_; }

 protected:
  void release(void* data, bool is_host) noexcept override;

 private:
  const Driver& driver_;
  const int ordinal_;
  const DeviceInfo info_;
  CUctx_st* const context_;
  const Target target_;
};

/// The devices opened so far.
std::vector<std::shared_ptr<CudaDevice>> open_devices();

}  // namespace laya::jit::cuda
