// Loaded CPU kernels: an object in memory, called once for each block of the grid.
#include <string>

#include "jit/cpu/device.h"
#include "jit/cpu/object_loader.h"
#include "jit/loader.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace laya::jit {
namespace {

/// `Block` of templates/cpu/types.h: which block of the grid, the grid, the next block.
struct Block {
  uint32_t x, y, z;
  uint32_t nx, ny, nz;
  uint32_t next_x;
};
using LaunchFn = void (*)(void* const* args, const Block* block);

struct Grid {
  LaunchFn function;
  void* const* args;
  Dim3 size;
};

/// The default floating point mode of x86 while it lives. Without it a row's result would depend on
/// which thread computes it: an application may have set its own to flush denormal numbers.
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() : previous_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~DefaultFloatMode() { _mm_setcsr(previous_); }
#else
  DefaultFloatMode() {}
  ~DefaultFloatMode() {}
#endif
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#if defined(__x86_64__)
  unsigned previous_;
#endif
};

void run_blocks(const void* context, uint64_t begin, uint64_t end, uint64_t next) {
  const DefaultFloatMode mode;
  const Grid& grid = *static_cast<const Grid*>(context);
  const auto [nx, ny, nz] = grid.size;
  const uint64_t count = uint64_t{nx} * ny * nz;
  const uint64_t column = begin / nx;
  Block block{static_cast<uint32_t>(begin % nx),
              static_cast<uint32_t>(column % ny),
              static_cast<uint32_t>(column / ny),
              nx,
              ny,
              nz,
              nx};
  for (uint64_t i = begin; i < end; ++i) {
    if (i + 1 < end) {
      block.next_x = block.x + 1 < nx ? block.x + 1 : 0;
    } else {
      block.next_x = next < count ? static_cast<uint32_t>(next % nx) : nx;
    }
    grid.function(grid.args, &block);
    if (++block.x < nx) continue;
    block.x = 0;
    if (++block.y < ny) continue;
    block.y = 0;
    ++block.z;
  }
}

class CpuKernel final : public Kernel {
 public:
  CpuKernel(LoadRequest request, ObjectImage image)
      : Kernel(std::move(request.name), std::move(request.signature), request.attributes),
        image_(std::move(image)) {}

  Result<int> occupancy(int /*threads*/, uint32_t /*dynamic_shared_bytes*/) const override {
    return 1;
  }

 protected:
  Result<void> do_launch(Stream& stream, const LaunchShape& shape,
                         void* const* values) const override {
    auto* device = dynamic_cast<CpuDevice*>(&stream.device());
    if (device == nullptr) {
      return fail(ErrorKind::kBadInput,
                  name() + " is a CPU kernel and cannot run on " + stream.device().name());
    }
    const Dim3 size = shape.grid;
    if (size.x == 0 || size.y == 0 || size.z == 0) return {};
    const uint64_t plane = uint64_t{size.x} * size.y;
    if (plane > UINT64_MAX / size.z) {
      return fail(ErrorKind::kBadInput, name() + ": the grid has more than 2^64 blocks");
    }
    const Grid grid{reinterpret_cast<LaunchFn>(image_.entry()), values, size};
    device->run(plane * size.z, run_blocks, &grid);
    return {};
  }

 private:
  ObjectImage image_;
};

/// The features of `target` that this CPU lacks, as text; empty if it has all.
Result<std::string> missing_features(const Target& target) {
  LAYA_ASSIGN(const CpuTargetParts parts, parse_cpu_target(target));
  std::string missing;
  for (const std::string& feature : parts.features) {
    if (!has_cpu_feature(host_cpu_target(), feature)) missing += " " + feature;
  }
  return missing;
}

}  // namespace

Result<std::shared_ptr<const Kernel>> load_cpu_kernel(LoadRequest request) {
  LAYA_ASSIGN(const std::string missing, missing_features(request.target));
  if (!missing.empty()) {
    return fail(ErrorKind::kDeviceError,
                request.name + " was compiled for features that this CPU lacks:" + missing);
  }
  auto image = ObjectImage::load(request.object, "laya_launch");
  if (!image) {
    image.error().message = request.name + ": " + image.error().message;
    return tl::make_unexpected(std::move(image).error());
  }
  return std::make_shared<const CpuKernel>(std::move(request), *std::move(image));
}

}  // namespace laya::jit
