#include "tools/gpu_bench.h"

#include <algorithm>
#include <cmath>

#include "jit/cuda/stream.h"
#include "model/convert.h"
#include "model/random.h"

namespace laya::tools {
namespace {

constexpr size_t kArenaBytes = size_t{544} << 20;  // of the largest activations: 32768 x 4096 x 4
constexpr size_t kWeightBytes = size_t{256} << 20;
constexpr size_t kBlasBytes = size_t{32} << 20;
constexpr size_t kBeyondCache = size_t{256} << 20;  // several times the L2 cache
constexpr size_t kMostSets = 64;
constexpr size_t kAlignment = 1024;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Result<std::unique_ptr<GpuBench>> GpuBench::create(std::shared_ptr<jit::Device> device,
                                                   std::shared_ptr<jit::Engine> engine,
                                                   model::DType dtype, int rounds) {
  std::unique_ptr<GpuBench> bench(new GpuBench);
  bench->device_ = std::move(device);
  bench->engine_ = std::move(engine);
  bench->dtype_ = dtype;
  bench->rounds_ = rounds;
  LAYA_ASSIGN(bench->stream_, bench->device_->create_stream());
  LAYA_ASSIGN(bench->activations_, bench->random_arena(kArenaBytes, 1, dtype, 1));
  LAYA_ASSIGN(bench->weights_, bench->random_arena(kWeightBytes, 1.0F / 32, dtype, 2));
  LAYA_ASSIGN(bench->residuals_, bench->random_arena(kArenaBytes, 1, dtype, 4));
  LAYA_ASSIGN(bench->floats_, bench->random_arena(kArenaBytes, 1, model::DType::kF32, 3));
  LAYA_ASSIGN(bench->results_.buffer, bench->device_->allocate(kArenaBytes));
  LAYA_ASSIGN(bench->more_results_.buffer, bench->device_->allocate(kArenaBytes));
  LAYA_ASSIGN(bench->blas_workspace_, bench->device_->allocate(kBlasBytes));
  bench->blas_ = CublasLt::open(bench->blas_workspace_.data(), kBlasBytes);
  return bench;
}

// A block of random numbers whose length is a prime, repeated: fast to make and irregular.
Result<GpuBench::Arena> GpuBench::random_arena(size_t bytes, float scale, model::DType dtype,
                                               uint64_t seed) const {
  constexpr size_t kBlock = 1048573;
  const auto size = static_cast<size_t>(model::size_of(dtype));
  std::vector<float> block(kBlock);
  for (size_t i = 0; i < kBlock; ++i) block[i] = model::random_normal(seed, 0, i, 0, scale);
  std::vector<std::byte> bits(kBlock * size);
  model::convert(reinterpret_cast<const std::byte*>(block.data()), model::DType::kF32, bits.data(),
                 dtype, kBlock);
  Arena arena;
  LAYA_ASSIGN(arena.buffer, device_->allocate(bytes));
  for (size_t at = 0; at < bytes; at += bits.size()) {
    LAYA_TRY(stream_->copy_to_device(arena.buffer.as<std::byte>() + at, bits.data(),
                                     std::min(bits.size(), bytes - at)));
  }
  LAYA_TRY(stream_->synchronize());
  return arena;
}

void* GpuBench::Arena::at(size_t set, size_t bytes) const {
  const size_t places = std::max<size_t>(1, buffer.size() / aligned(bytes));
  return buffer.as<std::byte>() + set % places * aligned(bytes);
}

void* GpuBench::activations(size_t set, size_t bytes) const {
  return activations_.at(set, bytes);
}
void* GpuBench::weights(size_t set, size_t bytes) const {
  return weights_.at(set, bytes);
}
std::pair<void*, void*> GpuBench::residual(size_t set, size_t bytes) const {
  auto* const x = static_cast<std::byte*>(residuals_.at(set, 2 * bytes));
  return {x, x + bytes};
}
void* GpuBench::floats(size_t set, size_t bytes) const {
  return floats_.at(set, bytes);
}
void* GpuBench::results(size_t set, size_t bytes) const {
  return results_.at(set, bytes);
}
void* GpuBench::more_results(size_t set, size_t bytes) const {
  return more_results_.at(set, bytes);
}

Result<void*> GpuBench::integers(const std::vector<int32_t>& values) {
  LAYA_ASSIGN(jit::Buffer buffer, device_->allocate(values.size() * 4));
  LAYA_TRY(stream_->copy_to_device(buffer.data(), values.data(), values.size() * 4));
  LAYA_TRY(stream_->synchronize());
  integers_.push_back(std::move(buffer));
  return integers_.back().data();
}

Result<std::unique_ptr<jit::Graph>> GpuBench::record(const QueueRun& run, int count,
                                                     size_t sets) const {
  LAYA_TRY(stream_->begin_capture());
  Result<void> queued;
  for (int i = 0; i < count && queued; ++i) queued = run(static_cast<size_t>(i) % sets);
  auto graph = stream_->end_capture();  // in any case, so that the stream can be used again
  if (!queued) return tl::make_unexpected(queued.error());
  return graph;
}

Result<std::vector<Samples>> GpuBench::time_us(const std::vector<QueueRun>& runs, size_t bytes) {
  const size_t sets = std::clamp<size_t>(kBeyondCache / std::max<size_t>(bytes, 1), 1, kMostSets);
  std::vector<std::unique_ptr<jit::Graph>> graphs;
  std::vector<int> counts;
  for (const QueueRun& run : runs) {
    LAYA_TRY(run(0));  // loads what has to be loaded
    LAYA_ASSIGN(const double ms, stream_->time_ms([&] { return run(0); }));
    counts.push_back(static_cast<int>(std::clamp(std::ceil(1.0 / ms), 4.0, 128.0)));
    LAYA_ASSIGN(auto graph, record(run, counts.back(), sets));
    graphs.push_back(std::move(graph));
  }
  std::vector<Samples> samples(runs.size());
  for (int round = -1; round < rounds_; ++round) {
    for (size_t i = 0; i < runs.size(); ++i) {
      LAYA_ASSIGN(const double ms, stream_->time_ms([&] { return stream_->launch(*graphs[i]); }));
      if (round >= 0) samples[i].add(ms * 1e3 / counts[i]);
    }
  }
  return samples;
}

Result<QueueRun> GpuBench::blas_run(int64_t rows, int64_t n, int64_t k) const {
  return blas_product(rows, n, k, /*adds=*/false);
}
Result<QueueRun> GpuBench::blas_add(int64_t rows, int64_t n, int64_t k) const {
  return blas_product(rows, n, k, /*adds=*/true);
}

Result<QueueRun> GpuBench::blas_product(int64_t rows, int64_t n, int64_t k, bool adds) const {
  const auto plan = blas_->plan(dtype_ == model::DType::kBF16, rows, n, k, adds);
  if (!plan) return fail(ErrorKind::kDeviceError, "cuBLASLt has no algorithm for a product");
  return [this, plan = *plan, rows, n, k](size_t set) -> Result<void> {
    const auto bytes = [](int64_t count) { return static_cast<size_t>(count * 2); };
    void* const out =
        plan.adds ? results(set, bytes(2 * rows * n)) : more_results(set, bytes(rows * n));
    void* const stream = static_cast<jit::cuda::CudaStream&>(*stream_).handle();
    if (blas_->run(plan, activations(set, bytes(rows * k)), weights(set, bytes(n * k)), out,
                   stream)) {
      return {};
    }
    return fail(ErrorKind::kDeviceError, "cublasLtMatmul fails");
  };
}

Result<void> GpuBench::copy_back(void* host, const void* device, size_t bytes) const {
  LAYA_TRY(stream_->copy_to_host(host, device, bytes));
  return stream_->synchronize();
}

}  // namespace laya::tools
