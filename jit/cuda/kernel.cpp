// A kernel loaded from a cubin: usable on every GPU of the process that its code fits.
#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "jit/cuda/architecture.h"
#include "jit/cuda/cubin.h"
#include "jit/cuda/device.h"
#include "jit/cuda/stream.h"
#include "jit/loader.h"

namespace laya::jit {
namespace cuda {
namespace {

/// More shared memory than this, static and dynamic, has to be asked for once per kernel and
/// device.
constexpr int64_t kPlainShared = 48 * 1024;
constexpr size_t kMaxMaps = 4;
/// Compute capability of the first GPUs with programmatic dependent launch.
constexpr int kFirstDependent = 90;

std::string shape_text(const LaunchShape& shape) {
  const auto extent = [](const Dim3& d) {
    return std::to_string(d.x) + "x" + std::to_string(d.y) + "x" + std::to_string(d.z);
  };
  return "grid " + extent(shape.grid) + ", block " + extent(shape.block) + ", " +
         std::to_string(shape.dynamic_shared_bytes) + " bytes of dynamic shared memory";
}

tl::unexpected<Error> refused(const Driver& driver, Error error) {
  return while_doing("driver for CUDA " + driver.version(), std::move(error));
}

class CudaKernel final : public Kernel {
 public:
  CudaKernel(LoadRequest request, const Driver& driver, Library library, CUkern_st* kernel)
      : Kernel(std::move(request.name), std::move(request.signature), request.attributes),
        driver_(driver),
        target_(std::move(request.target)),
        library_(std::move(library)),
        kernel_(kernel),
        is_dependent_(request.is_dependent && driver.has_dependent_launch()),
        has_maps_(std::any_of(signature().begin(), signature().end(),
                              [](const ArgDecl& arg) { return arg.kind == ArgKind::kTensorMap; })) {
  }

  Result<int> occupancy(int threads, uint32_t dynamic_shared_bytes) const override;

  const Target& target() const { return target_; }

  /// Makes the kernel ready for launches on `device` with that much dynamic shared memory. Free
  /// once that has been done.
  Result<void> prepare(const CudaDevice& device, uint32_t dynamic_shared_bytes) const {
    const int64_t shared = attributes().static_shared_bytes + dynamic_shared_bytes;
    const Readiness wanted = shared > kPlainShared ? kLargeShared : kLoaded;
    if (ready_[device.ordinal()].load(std::memory_order_acquire) >= wanted) return {};
    return make_ready(device, wanted);
  }

 protected:
  Result<void> do_launch(Stream& stream, const LaunchShape& shape,
                         void* const* values) const override;

 private:
  enum Readiness : uint8_t { kNothing, kLoaded, kLargeShared };

  Result<void> make_ready(const CudaDevice& device, Readiness wanted) const;
  Result<void> launch_now(const CudaDevice& device, const CudaStream& queue,
                          const LaunchShape& shape, void* const* values) const;
  Result<void> launch_with_maps(const CudaDevice& device, const CudaStream& queue,
                                const LaunchShape& shape, void* const* values) const;
  tl::unexpected<Error> not_launched(const CudaDevice& device, const LaunchShape& shape,
                                     Error error) const;

  const Driver& driver_;
  const Target target_;
  const std::shared_ptr<CUlib_st> library_;  // graphs share it
  CUkern_st* const kernel_;
  const bool is_dependent_;
  const bool has_maps_;       // some arguments are tensor maps
  mutable std::mutex mutex_;  // held while making ready
  mutable std::array<std::atomic<Readiness>, kMaxDevices> ready_{};
};

Result<void> CudaKernel::make_ready(const CudaDevice& device, Readiness wanted) const {
  if (!runs_on(target_, device.info().capability)) {
    return fail(ErrorKind::kDeviceError, "it was compiled for " + target_.name + ", " +
                                             device.name() + " is " + device.target().name);
  }
  const std::lock_guard lock(mutex_);
  std::atomic<Readiness>& ready = ready_[device.ordinal()];
  if (ready < kLoaded) {
    auto loaded = driver_.load_into(device.context(), kernel_);
    if (!loaded) return refused(driver_, std::move(loaded).error());
    ready.store(kLoaded, std::memory_order_release);
  }
  if (wanted == kLargeShared && ready < kLargeShared) {
    const int64_t most = device.info().block_shared - attributes().static_shared_bytes;
    auto allowed = driver_.allow_shared(device.ordinal(), kernel_, most);
    if (!allowed) return refused(driver_, std::move(allowed).error());
    ready.store(kLargeShared, std::memory_order_release);
  }
  return {};
}

tl::unexpected<Error> CudaKernel::not_launched(const CudaDevice& device, const LaunchShape& shape,
                                               Error error) const {
  const int64_t shared = attributes().static_shared_bytes + shape.dynamic_shared_bytes;
  if (shared > device.info().block_shared) {
    error.message += "; a block has at most " + std::to_string(device.info().block_shared) +
                     " bytes of shared memory, " + std::to_string(shared) + " were asked for";
  }
  return while_doing("launching " + name() + " on " + device.name() + " (" + shape_text(shape) +
                         "; " + std::to_string(attributes().registers) + " registers)",
                     std::move(error));
}

Result<void> CudaKernel::launch_now(const CudaDevice& device, const CudaStream& queue,
                                    const LaunchShape& shape, void* const* values) const {
  if (is_dependent_ && device.info().capability >= kFirstDependent) {
    return driver_.launch_dependent(device.context(), queue.handle(), kernel_, shape, values);
  }
  return driver_.launch(device.context(), queue.handle(), kernel_, shape, values);
}

/// Turns the pointers given for tensor maps into maps: the kernel gets these 128 bytes by value.
Result<void> CudaKernel::launch_with_maps(const CudaDevice& device, const CudaStream& queue,
                                          const LaunchShape& shape, void* const* values) const {
  std::array<TensorMapBytes, kMaxMaps> maps;
  std::array<void*, kMaxLaunchArgs> patched;
  size_t count = 0;
  for (size_t i = 0; i < signature().size(); ++i) {
    patched[i] = values[i];
    const ArgDecl& arg = signature()[i];
    if (arg.kind != ArgKind::kTensorMap) continue;
    if (count == kMaxMaps) return fail(ErrorKind::kBadSpec, "more than 4 tensor maps");
    const int64_t rows = arg.map.rows_arg < 0
                             ? arg.map.rows
                             : *static_cast<const int32_t*>(values[arg.map.rows_arg]);
    void* const data = *static_cast<void* const*>(values[i]);
    LAYA_TRY(driver_.encode_map(device.context(), maps[count], arg.map, data, rows));
    patched[i] = &maps[count++];
  }
  return launch_now(device, queue, shape, patched.data());
}

Result<void> CudaKernel::do_launch(Stream& stream, const LaunchShape& shape,
                                   void* const* values) const {
  if (stream.device().target().backend != Backend::kCuda) {
    return fail(ErrorKind::kBadInput,
                "launch of " + name() + ": a GPU kernel on a stream of " + stream.device().name());
  }
  auto& queue = static_cast<CudaStream&>(stream);
  const CudaDevice& device = queue.cuda_device();
  auto done = prepare(device, shape.dynamic_shared_bytes);
  if (done) {
    done = has_maps_ ? launch_with_maps(device, queue, shape, values)
                     : launch_now(device, queue, shape, values);
  }
  if (!done) return not_launched(device, shape, std::move(done).error());
  queue.note_launch(library_);
  return {};
}

Result<int> CudaKernel::occupancy(int threads, uint32_t dynamic_shared_bytes) const {
  for (const auto& device : open_devices()) {
    if (!runs_on(target_, device->info().capability)) continue;
    LAYA_TRY(prepare(*device, dynamic_shared_bytes));
    return driver_.occupancy(device->context(), kernel_, threads, dynamic_shared_bytes);
  }
  return fail(ErrorKind::kUnavailable,
              "occupancy of " + name() + ": no device for " + target_.name + " is open");
}

/// Fails if no GPU of this machine can run code for `target`; names what there is.
Result<void> check_fits(const Driver& driver, const Target& target) {
  LAYA_ASSIGN(const int count, driver.device_count());
  std::string seen;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    LAYA_ASSIGN(const DeviceInfo info, driver.describe(ordinal));
    if (runs_on(target, info.capability)) return {};
    seen += (seen.empty() ? "" : ", ") + info.name + " (" + target_of(info.capability).name + ")";
  }
  return fail(ErrorKind::kDeviceError,
              "it was compiled for " + target.name + ", this machine has " + seen);
}

/// The driver is given only bytes that are whole and are what the request says they are.
Result<void> check_object(const LoadRequest& request) {
  auto cubin = read_cubin(request.object, request.entry);
  if (!cubin) return fail(ErrorKind::kDeviceError, cubin.error().message);
  if (cubin->capability != compute_capability(request.target)) {
    return fail(ErrorKind::kDeviceError, "the cubin holds code for sm_" +
                                             std::to_string(cubin->capability) + ", not for " +
                                             request.target.name);
  }
  return {};
}

Result<std::shared_ptr<const Kernel>> load_kernel(LoadRequest request) {
  LAYA_TRY(check_object(request));
  LAYA_ASSIGN(const Driver* driver, Driver::get());
  LAYA_TRY(check_fits(*driver, request.target));
  auto library = driver->load_library(request.object);
  if (!library) return refused(*driver, std::move(library).error());
  auto kernel = driver->find_kernel(library->get(), request.entry);
  if (!kernel) return refused(*driver, std::move(kernel).error());
  auto loaded =
      std::make_shared<CudaKernel>(std::move(request), *driver, *std::move(library), *kernel);
  // The driver loads lazily; load now, so that bad code shows here and launches are never slow.
  for (const auto& device : open_devices()) {
    if (runs_on(loaded->target(), device->info().capability)) LAYA_TRY(loaded->prepare(*device, 0));
  }
  return loaded;
}

}  // namespace
}  // namespace cuda

Result<std::shared_ptr<const Kernel>> load_cuda_kernel(LoadRequest request) {
  const std::string what = "loading " + request.name + " for " + request.target.name;
  auto kernel = cuda::load_kernel(std::move(request));
  if (!kernel) return cuda::while_doing(what, std::move(kernel).error());
  return kernel;
}

}  // namespace laya::jit
