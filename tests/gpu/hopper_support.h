// What the parts of hopper_check share: its options, the GPU with an engine, random values.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/cuda/stream.h"
#include "jit/engine.h"
#include "model/convert.h"
#include "model/random.h"
#include "model/tiles_sm90.h"
#include "tools/cublas_lt.h"

namespace laya::test {

using jit::Buffer;
using model::DType;

inline constexpr size_t kManyBytes = size_t{400} << 20;  // much more than the L2 cache holds

struct Flags {
  bool check = false, bench = false;
  std::string only, tile, shape;
  DType dtype = DType::kBF16;
  int64_t rows = 0, spin = 0, sweep = 0;
};

[[noreturn]] inline void die(const std::string& why) {
  std::printf("FAILED: %s\n", why.c_str());
  std::fflush(stdout);
  _exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) die(result.error().message + "\n" + result.error().detail.substr(0, 4000));
  return std::move(*result);
}
inline void must(Result<void> result) {
  if (!result) die(result.error().message);
}

struct Gpu {
  std::shared_ptr<jit::Engine> engine;
  std::shared_ptr<jit::Device> device;
  std::unique_ptr<jit::Stream> stream;
  std::optional<tools::CublasLt> blas;
  Buffer workspace;

  void* handle() const { return static_cast<jit::cuda::CudaStream&>(*stream).handle(); }
  Buffer allocate(size_t bytes) const { return must(device->allocate(bytes)); }

  Buffer upload(const void* data, size_t bytes) const {
    Buffer buffer = allocate(bytes);
    must(stream->copy_to_device(buffer.data(), data, bytes));
    must(stream->synchronize());
    return buffer;
  }

  /// Microseconds of one of `count` launches, replayed as a graph; the median of several replays.
  double time_us(int count, const std::function<void(int)>& launch) const {
    launch(0);  // loads everything before the recording
    must(stream->synchronize());
    must(stream->begin_capture());
    for (int i = 0; i < count; ++i) launch(i);
    const auto graph = must(stream->end_capture());
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
      times.push_back(must(stream->time_ms([&] { return stream->launch(*graph); })));
    }
    std::sort(times.begin() + 2, times.end());  // the first two warm up
    return times[2 + (times.size() - 2) / 2] * 1000 / count;
  }
};

/// 16-bit values, as bits.
struct Values {
  DType dtype;
  std::vector<uint16_t> bits;

  Values(DType type, size_t count, uint64_t seed, float scale) : dtype(type), bits(count) {
    // A block of random numbers whose length is prime to everything, repeated: fast and irregular.
    const size_t block = std::min<size_t>(count, 1048573);
    for (size_t i = 0; i < block; ++i) {
      const float x = model::random_normal(seed, 0, i, 0, scale);
      bits[i] = type == DType::kBF16 ? model::float_to_bf16(x) : model::float_to_fp16(x);
    }
    for (size_t i = block; i < count; ++i) bits[i] = bits[i - block];
  }
  float operator[](size_t i) const { return to_float(bits[i]); }
  float to_float(uint16_t x) const {
    return dtype == DType::kBF16 ? model::bf16_to_float(x) : model::fp16_to_float(x);
  }
  size_t bytes() const { return bits.size() * 2; }
};

/// The kernel specs and launch rules of tiles.
std::vector<model::Variant> to_variants(const jit::KernelSpec& base,
                                        const std::vector<model::Tile>& tiles, const Flags& flags);

/// Compiles all of these at once, so that the parts that follow do not wait for one after the
/// other.
void warm(const Gpu& gpu, const std::vector<jit::KernelSpec>& specs);

/// The parts of the program.
void run_products(Gpu& gpu, const Flags& flags);
void run_attention(Gpu& gpu, const Flags& flags);

}  // namespace laya::test
