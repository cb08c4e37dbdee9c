#include "jit/cuda/device.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "jit/cuda/architecture.h"
#include "jit/cuda/stream.h"

namespace laya::jit {
namespace cuda {
namespace {

constexpr int kOldestCapability = 75;

struct Registry {
  std::mutex mutex;
  std::array<std::shared_ptr<CudaDevice>, kMaxDevices> devices;
};

/// Never destroyed: buffers with static lifetime may outlive everything else.
Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

}  // namespace

CudaDevice::CudaDevice(const Driver& driver, int ordinal, DeviceInfo info, CUctx_st* context)
    : driver_(driver),
      ordinal_(ordinal),
      info_(std::move(info)),
      context_(context),
      target_(target_of(info_.capability)) {}

Result<std::shared_ptr<CudaDevice>> CudaDevice::open(const Driver& driver, int ordinal) {
  LAYA_ASSIGN(const int count, driver.device_count());
  if (ordinal < 0 || ordinal >= std::min(count, kMaxDevices)) {
    return fail(ErrorKind::kUnavailable,
                "GPU " + std::to_string(ordinal) + " does not exist: this process sees " +
                    std::to_string(count) + " (CUDA_VISIBLE_DEVICES can hide some)");
  }
  LAYA_ASSIGN(DeviceInfo info, driver.describe(ordinal));
  if (info.capability < kOldestCapability) {
    return fail(ErrorKind::kUnavailable,
                info.name + " has compute capability " + std::to_string(info.capability / 10) +
                    "." + std::to_string(info.capability % 10) + ", 7.5 or later is needed");
  }
  auto context = driver.retain_context(ordinal);
  if (!context) return while_doing("opening " + info.name, std::move(context).error());
  return std::make_shared<CudaDevice>(driver, ordinal, std::move(info), *context);
}

Result<Buffer> CudaDevice::allocate(size_t bytes) {
  if (bytes == 0) return Buffer(shared_from_this(), nullptr, 0, /*is_host=*/false);
  auto data = driver_.allocate(context_, bytes);
  if (!data) {
    return while_doing("allocating " + std::to_string(bytes) + " bytes on " + name() + " (" +
                           std::to_string(driver_.free_bytes(context_)) + " are free)",
                       std::move(data).error());
  }
  return Buffer(shared_from_this(), *data, bytes, /*is_host=*/false);
}

Result<Buffer> CudaDevice::allocate_host(size_t bytes) {
  if (bytes == 0) return Buffer(shared_from_this(), nullptr, 0, /*is_host=*/true);
  auto data = driver_.allocate_host(context_, bytes);
  if (!data) {
    return while_doing("allocating " + std::to_string(bytes) + " bytes of pinned host memory",
                       std::move(data).error());
  }
  return Buffer(shared_from_this(), *data, bytes, /*is_host=*/true);
}

void CudaDevice::release(void* data, bool is_host) noexcept {
  if (is_host) {
    driver_.free_host(context_, data);
  } else {
    driver_.free(context_, data);
  }
}

Result<std::unique_ptr<Stream>> CudaDevice::create_stream() {
  auto handle = driver_.create_stream(context_);
  if (!handle) return while_doing("creating a stream on " + name(), std::move(handle).error());
  auto self = std::static_pointer_cast<CudaDevice>(shared_from_this());
  return std::make_unique<CudaStream>(std::move(self), *std::move(handle));
}

std::vector<std::shared_ptr<CudaDevice>> open_devices() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<std::shared_ptr<CudaDevice>> open;
  for (const auto& device : all.devices) {
    if (device) open.push_back(device);
  }
  return open;
}

}  // namespace cuda

Result<std::shared_ptr<Device>> open_cuda_device(int ordinal) {
  LAYA_ASSIGN(const cuda::Driver* driver, cuda::Driver::get());
  cuda::Registry& all = cuda::registry();
  const std::lock_guard lock(all.mutex);
  const bool is_known = ordinal >= 0 && ordinal < cuda::kMaxDevices;
  if (is_known && all.devices[ordinal]) return all.devices[ordinal];
  LAYA_ASSIGN(auto device, cuda::CudaDevice::open(*driver, ordinal));
  all.devices[ordinal] = device;
  return device;
}

}  // namespace laya::jit
