#include "jit/cpu/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "jit/cpu/core_count.h"
#include "jit/cpu/cpuid.h"

namespace laya::jit {
namespace {

constexpr size_t kAlignment = 256;
/// From here on, huge pages save more on address translation than their coarseness wastes.
constexpr size_t kHugeFrom = size_t{4} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

/// No process of the architectures that we know can have more.
constexpr size_t kMaxBytes = size_t{1} << 47;

/// Does everything at once, so that there is never anything to wait for.
class CpuStream final : public Stream {
 public:
  explicit CpuStream(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  Device& device() const override { return *device_; }
  Result<void> synchronize() override { return {}; }
  Result<void> begin_capture() override { return no_graphs(); }
  Result<std::unique_ptr<Graph>> end_capture() override { return no_graphs(); }
  Result<void> launch(Graph& /*graph*/) override { return no_graphs(); }

  Result<void> copy_to_device(void* device_dst, const void* host_src, size_t bytes) override {
    if (bytes > 0) std::memcpy(device_dst, host_src, bytes);
    return {};
  }
  Result<void> copy_to_host(void* host_dst, const void* device_src, size_t bytes) override {
    if (bytes > 0) std::memcpy(host_dst, device_src, bytes);
    return {};
  }
  Result<void> fill(void* device_dst, uint8_t value, size_t bytes) override {
    if (bytes > 0) std::memset(device_dst, value, bytes);
    return {};
  }

  Result<double> time_ms(const std::function<Result<void>()>& work) override {
    const auto begin = std::chrono::steady_clock::now();
    LAYA_TRY(work());
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  }

 private:
  static tl::unexpected<Error> no_graphs() {
    return fail(ErrorKind::kUnavailable,
                "the CPU has no graphs; launch the kernels one by one (see Device::has_graphs)");
  }

  std::shared_ptr<Device> device_;
};

std::string cpu_name() {
  std::string brand = read_cpuid().brand;
  return brand.empty() ? "CPU" : brand;
}

/// A grid whose blocks the tasks of an executor claim, a few at a time.
struct SharedGrid {
  uint64_t count;
  uint64_t chunk, stride;
  ThreadPool::BlockFn fn;
  const void* context;
  std::atomic<uint64_t> next{0};

  static void run_some(void* grid, int /*index*/) {
    auto& self = *static_cast<SharedGrid*>(grid);
    for (;;) {
      const uint64_t begin = self.next.fetch_add(self.chunk, std::memory_order_relaxed);
      if (begin >= self.count) return;
      self.fn(self.context, begin, std::min(begin + self.chunk, self.count), begin + self.stride);
    }
  }
};

int count_of(const CpuThreads& threads) {
  return threads.count > 0 ? threads.count : available_cores();
}

}  // namespace

CpuDevice::CpuDevice(const CpuThreads& threads)
    : name_(cpu_name()),
      executor_(threads.executor),
      tasks_(count_of(threads)),
      pool_(executor_ ? 1 : tasks_, threads.are_pinned) {}

void CpuDevice::run(uint64_t count, ThreadPool::BlockFn fn, const void* context) {
  const int tasks = static_cast<int>(std::min<uint64_t>(count, static_cast<uint64_t>(tasks_)));
  if (!executor_ || tasks < 2) return pool_.run(count, fn, context);
  const uint64_t chunk = ThreadPool::chunk_of(count, tasks);
  SharedGrid grid{count, chunk, chunk * static_cast<uint64_t>(tasks), fn, context};
  executor_(tasks, SharedGrid::run_some, &grid);
}

Result<std::unique_ptr<Stream>> CpuDevice::create_stream() {
  return std::make_unique<CpuStream>(shared_from_this());
}

Result<Buffer> CpuDevice::allocate_memory(size_t bytes, bool is_host) {
  const size_t alignment = bytes >= kHugeFrom ? kHugePage : kAlignment;
  void* data = nullptr;
  if (bytes <= kMaxBytes) {
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
    if (data != nullptr && alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
  }
  if (data == nullptr) {
    return fail(ErrorKind::kDeviceError,
                "the system has no " + std::to_string(bytes) + " bytes of memory left");
  }
  return Buffer(shared_from_this(), data, bytes, is_host);
}

void CpuDevice::release(void* data, bool /*is_host*/) noexcept {
  std::free(data);
}

std::shared_ptr<Device> open_cpu_device(const CpuThreads& threads) {
  return std::make_shared<CpuDevice>(threads);
}

std::shared_ptr<Device> open_cpu_device(int threads) {
  return open_cpu_device(CpuThreads{.count = threads});
}

}  // namespace laya::jit
