// Kernels on a GPU: launching, graphs, timing, faults. Cases that need no GPU come first.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "jit/kernel.h"
#include "jit/loader.h"
#include "tests/jit/cuda_support.h"

using namespace laya;
using namespace laya::jit;
using namespace laya::test;

namespace {

const std::string kKernels = kSaxpy + R"(
extern "C" __global__ void reverse(int* p, int n) {
  extern __shared__ int s[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = p[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = s[n - 1 - i];
}

extern "C" __global__ void reverse_by_tables(int* p, int n) {
  extern __shared__ int s[];
  __shared__ int table[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) table[i] = 1023 - i;
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = p[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = s[n - 1024 - i / 1024 * 1024 + table[i % 1024]];
}

extern "C" __global__ void fault(int* p) { *p = 1; }

extern "C" __global__ void spin(long long* p, long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {}
  *p = clock64();
}
)";

const Signature kSaxpySignature = {
    {"a", ArgKind::kF32}, {"x", ArgKind::kPointer}, {"y", ArgKind::kPointer}, {"n", ArgKind::kI32}};

LoadRequest compiled(const std::string& entry, Signature signature, const std::string& target) {
  auto output = nvrtc().compile(request(kKernels, entry, target));
  REQUIRE_MESSAGE(output, output.error().to_string());
  LoadRequest load;
  load.name = entry;
  load.entry = entry;
  load.target = {Backend::kCuda, target};
  load.signature = std::move(signature);
  load.attributes = output->attributes;
  load.object = std::move(output->object);
  return load;
}

std::shared_ptr<const Kernel> kernel(const Device& device, const std::string& entry,
                                     Signature signature) {
  auto loaded = load_cuda_kernel(compiled(entry, std::move(signature), device.target().name));
  REQUIRE_MESSAGE(loaded, loaded.error().to_string());
  return *loaded;
}

/// A GPU, and a compiler for it; null, with a line that says why, if one of them is missing.
std::shared_ptr<Device> gpu_with_compiler() {
  return has_nvrtc() ? gpu() : nullptr;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

LaunchShape blocks(int64_t elements, uint32_t threads) {
  return {{static_cast<uint32_t>((elements + threads - 1) / threads)}, {threads}};
}

}  // namespace

TEST_CASE("damaged bytes are refused before the driver sees them") {
  if (!has_nvrtc()) return;
  const LoadRequest good = compiled("saxpy", kSaxpySignature, "sm_80");
  LoadRequest cut = good, foreign = good, renamed = good;
  cut.object.resize(cut.object.size() / 2);
  foreign.target.name = "sm_90a";
  renamed.entry = "missing";
  for (const auto& [bad, expected] :
       {std::pair{cut, "damaged"}, {foreign, "sm_80"}, {renamed, "'missing'"}}) {
    const auto loaded = load_cuda_kernel(bad);
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().kind == ErrorKind::kDeviceError);
    CHECK(contains(loaded.error().message, expected));
    CHECK(contains(loaded.error().message, "loading saxpy"));
  }
}

TEST_CASE("a cubin of another architecture is refused with both names") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  const std::string other = compute_capability(device->target()) / 10 == 8 ? "sm_75" : "sm_80";
  const auto loaded = load_cuda_kernel(compiled("saxpy", kSaxpySignature, other));
  REQUIRE_FALSE(loaded);
  CHECK(loaded.error().kind == ErrorKind::kDeviceError);
  CHECK(contains(loaded.error().message, other));
  CHECK(contains(loaded.error().message, device->target().name));
}

TEST_CASE("saxpy over a million elements is right") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  constexpr int kCount = 1'000'003;
  auto stream = *device->create_stream();
  std::vector<float> x(kCount), y(kCount, 1.0f), expected(kCount);
  for (int i = 0; i < kCount; ++i) {
    x[i] = static_cast<float>(i % 1000);
    expected[i] = 2.0f * x[i] + 1.0f;
  }
  const size_t bytes = kCount * sizeof(float);
  const Buffer dx = *device->allocate(bytes), dy = *device->allocate(bytes);
  const auto saxpy = kernel(*device, "saxpy", kSaxpySignature);
  REQUIRE(stream->copy_to_device(dx.data(), x.data(), bytes));
  REQUIRE(stream->copy_to_device(dy.data(), y.data(), bytes));
  REQUIRE(saxpy->launch(*stream, blocks(kCount, 256), 2.0f, dx.data(), dy.data(), kCount));
  REQUIRE(stream->copy_to_host(y.data(), dy.data(), bytes));
  REQUIRE(stream->synchronize());
  CHECK((y == expected));
}

TEST_CASE("a kernel reads and writes the host's memory at its own address, in a graph, too") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  constexpr int kCount = 1003;
  auto stream = *device->create_stream();
  const Buffer x = *device->allocate_host(kCount * sizeof(float));
  const Buffer y = *device->allocate_host(kCount * sizeof(float));
  std::iota(x.as<float>(), x.as<float>() + kCount, 0.0f);
  std::fill_n(y.as<float>(), kCount, 1.0f);
  const auto saxpy = kernel(*device, "saxpy", kSaxpySignature);
  const auto add = [&] {
    return saxpy->launch(*stream, blocks(kCount, 256), 2.0f, x.data(), y.data(), kCount);
  };
  const auto sums = [&](float times) {
    for (int i = 0; i < kCount; ++i) {
      if (y.as<float>()[i] != times * 2.0f * static_cast<float>(i) + 1.0f) return false;
    }
    return true;
  };
  REQUIRE(add());
  REQUIRE(stream->synchronize());
  CHECK(sums(1));
  REQUIRE(stream->begin_capture());
  REQUIRE(add());
  auto graph = stream->end_capture();
  REQUIRE(graph);
  REQUIRE(stream->launch(**graph));
  REQUIRE(stream->synchronize());
  CHECK(sums(2));
}

TEST_CASE("wrong arguments are refused and nothing is launched") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  auto stream = *device->create_stream();
  const Buffer memory = *device->allocate(4);
  REQUIRE(stream->fill(memory.data(), 0, 4));
  const auto saxpy = kernel(*device, "saxpy", kSaxpySignature);
  const LaunchShape one{{1}, {1}};
  const Result<void> results[] = {
      saxpy->launch(*stream, one, 2.0f, memory.data(), memory.data()),
      saxpy->launch(*stream, one, 2.0, memory.data(), memory.data(), 1),
      saxpy->launch(*stream, one, 2.0f, memory.data(), memory.data(), int64_t{1}),
      saxpy->launch(*stream, {{1}, {1025}}, 2.0f, memory.data(), memory.data(), 1),
  };
  for (const auto& result : results) {
    REQUIRE_FALSE(result);
    CHECK(result.error().kind == ErrorKind::kBadInput);
    CHECK(contains(result.error().message, "saxpy"));
  }
  CHECK(saxpy->launch(*stream, {{0}, {1}}, 2.0f, memory.data(), memory.data(), 1));
  const auto cpu = open_cpu_device(1);
  auto cpu_stream = *cpu->create_stream();
  CHECK_FALSE(saxpy->launch(*cpu_stream, one, 2.0f, memory.data(), memory.data(), 1));
  CHECK(stream->synchronize());
}

TEST_CASE("a kernel can use more than 48 KiB of dynamic shared memory, from many threads at once") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  const auto reverse = kernel(*device, "reverse", {{"p", ArgKind::kPointer}, {"n", ArgKind::kI32}});
  constexpr int kCount = 15'000;  // 60 KB: every GPU from 7.5 on has 64
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto stream = *device->create_stream();
      std::vector<int> values(kCount), expected(kCount);
      for (int i = 0; i < kCount; ++i) values[i] = expected[kCount - 1 - i] = i;
      const size_t bytes = kCount * sizeof(int);
      const Buffer memory = *device->allocate(bytes);
      const LaunchShape shape{{1}, {512}, static_cast<uint32_t>(bytes)};
      const bool is_done = stream->copy_to_device(memory.data(), values.data(), bytes) &&
                           reverse->launch(*stream, shape, memory.data(), kCount) &&
                           stream->copy_to_host(values.data(), memory.data(), bytes) &&
                           stream->synchronize();
      if (is_done && values == expected) ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 4);

  auto stream = *device->create_stream();
  const auto refused =
      reverse->launch(*stream, {{1}, {512}, 1 << 20}, static_cast<void*>(nullptr), 0);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind == ErrorKind::kDeviceError);
  CHECK(contains(refused.error().message, "1048576 bytes of dynamic shared memory"));
  CHECK(stream->synchronize());
}

TEST_CASE("static and dynamic shared memory may exceed 48 KiB together") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  constexpr int kCount = 12 * 1024;  // 48 KiB, and 4 KiB of a table
  const auto reverse =
      kernel(*device, "reverse_by_tables", {{"p", ArgKind::kPointer}, {"n", ArgKind::kI32}});
  CHECK(reverse->attributes().static_shared_bytes >= 4096);
  std::vector<int> numbers(kCount);
  for (int i = 0; i < kCount; ++i) numbers[static_cast<size_t>(i)] = i;
  auto stream = device->create_stream();
  auto buffer = device->allocate(kCount * sizeof(int));
  REQUIRE((stream && buffer));
  REQUIRE((*stream)->copy_to_device(buffer->data(), numbers.data(), kCount * sizeof(int)));
  const LaunchShape shape{.block = {256}, .dynamic_shared_bytes = kCount * sizeof(int)};
  const auto launched = reverse->launch(**stream, shape, buffer->data(), kCount);
  REQUIRE_MESSAGE(launched, launched.error().to_string());
  REQUIRE((*stream)->copy_to_host(numbers.data(), buffer->data(), kCount * sizeof(int)));
  REQUIRE((*stream)->synchronize());
  for (int i = 0; i < kCount; ++i) REQUIRE(numbers[static_cast<size_t>(i)] == kCount - 1 - i);
}

TEST_CASE("occupancy falls with the threads and the shared memory of a block") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  const auto reverse = kernel(*device, "reverse", {{"p", ArgKind::kPointer}, {"n", ArgKind::kI32}});
  const int small = *reverse->occupancy(128, 0);
  CHECK(small >= 8);
  CHECK(*reverse->occupancy(1024, 0) < small);
  CHECK(*reverse->occupancy(128, 60'000) < small);
  CHECK(*reverse->occupancy(128, 60'000) >= 1);
}

TEST_CASE("a graph replays what was recorded, also after its kernel was let go") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  constexpr int kCount = 1000;
  auto stream = *device->create_stream();
  std::vector<float> ones(kCount, 1.0f), y(kCount);
  const size_t bytes = kCount * sizeof(float);
  const Buffer dx = *device->allocate(bytes), dy = *device->allocate(bytes);
  REQUIRE(stream->copy_to_device(dx.data(), ones.data(), bytes));
  REQUIRE(stream->fill(dy.data(), 0, bytes));
  auto saxpy = kernel(*device, "saxpy", kSaxpySignature);

  REQUIRE(stream->begin_capture());
  for (int i = 0; i < 3; ++i) {
    REQUIRE(saxpy->launch(*stream, blocks(kCount, 128), 1.0f, dx.data(), dy.data(), kCount));
  }
  auto graph = stream->end_capture();
  REQUIRE_MESSAGE(graph, graph.error().to_string());
  saxpy.reset();

  const auto first = [&] {
    REQUIRE(stream->copy_to_host(y.data(), dy.data(), bytes));
    REQUIRE(stream->synchronize());
    return y[0];
  };
  CHECK(first() == 0.0f);  // recorded, not run
  REQUIRE(stream->launch(**graph));
  CHECK(first() == 3.0f);
  auto other_stream = *device->create_stream();
  REQUIRE(other_stream->launch(**graph));
  REQUIRE(other_stream->synchronize());
  CHECK(first() == 6.0f);
  CHECK((y == std::vector<float>(kCount, 6.0f)));
}

TEST_CASE("a recording that breaks is an error and the stream can be used again") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  auto stream = *device->create_stream();
  CHECK_FALSE(stream->end_capture());
  REQUIRE(stream->begin_capture());
  CHECK_FALSE(stream->begin_capture());
  CHECK_FALSE(stream->synchronize());  // waiting cannot be recorded
  const auto graph = stream->end_capture();
  REQUIRE_FALSE(graph);
  CHECK(contains(graph.error().message, "CUDA_ERROR_STREAM_CAPTURE"));
  CHECK(stream->synchronize());

  auto abandoned = *device->create_stream();
  REQUIRE(abandoned->begin_capture());
  abandoned.reset();
  CHECK(stream->synchronize());
}

TEST_CASE("work is timed by the device") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  auto stream = *device->create_stream();
  const Buffer memory = *device->allocate(8);
  const auto spin = kernel(*device, "spin", {{"p", ArgKind::kPointer}, {"cycles", ArgKind::kI64}});
  const auto timed = [&](int64_t cycles) {
    return *stream->time_ms(
        [&] { return spin->launch(*stream, {{1}, {1}}, memory.data(), cycles); });
  };
  timed(1);
  const double shorter = timed(100'000), longer = timed(10'000'000);
  CHECK(shorter > 0);
  CHECK(longer > 10 * shorter);
  const auto failed = stream->time_ms([] { return fail(ErrorKind::kBadInput, "not today"); });
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "not today");
}

TEST_CASE("several threads with streams of their own do not disturb each other") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  const auto saxpy = kernel(*device, "saxpy", kSaxpySignature);
  constexpr int kCount = 50'000;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      auto stream = *device->create_stream();
      const size_t bytes = kCount * sizeof(float);
      std::vector<float> x(kCount, static_cast<float>(t)), y(kCount);
      const Buffer dx = *device->allocate(bytes), dy = *device->allocate(bytes);
      bool is_good =
          stream->copy_to_device(dx.data(), x.data(), bytes) && stream->fill(dy.data(), 0, bytes);
      for (int i = 0; i < 50 && is_good; ++i) {
        is_good = saxpy->launch(*stream, blocks(kCount, 256), 1.0f, dx.data(), dy.data(), kCount)
                      .has_value();
      }
      is_good =
          is_good && stream->copy_to_host(y.data(), dy.data(), bytes) && stream->synchronize();
      if (is_good && y == std::vector<float>(kCount, 50.0f * static_cast<float>(t))) ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 8);
}

TEST_CASE("in a fresh process: a kernel that writes to a bad address" * doctest::skip()) {
  const auto device = gpu_with_compiler();
  REQUIRE(device);
  auto stream = *device->create_stream();
  const auto fault = kernel(*device, "fault", {{"p", ArgKind::kPointer}});
  CHECK(fault->launch(*stream, {{1}, {1}}, reinterpret_cast<void*>(uintptr_t{4096})));
  const auto result = stream->synchronize();
  REQUIRE_FALSE(result);
  CHECK(result.error().kind == ErrorKind::kDeviceError);
  CHECK(contains(result.error().message, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
}

TEST_CASE("a fault of a kernel is reported by synchronize()") {
  if (!gpu_with_compiler()) return;
  const auto run =
      run_in_fresh_process("in a fresh process: a kernel that writes to a bad address");
  CHECK_MESSAGE(run.status == 0, run.output);
  CHECK(contains(run.output, "1 passed"));
}

TEST_CASE("what the driver says about a kernel agrees with what was read from its cubin") {
  const auto device = gpu_with_compiler();
  if (!device) return;
  // The largest block is one more than the driver accepts.
  auto load = compiled("spin", {{"p", ArgKind::kPointer}, {"cycles", ArgKind::kI64}},
                       device->target().name);
  const auto most = static_cast<uint32_t>(load.attributes.max_threads);
  load.attributes.max_threads = 0;  // so that only the driver checks
  const auto spin = *load_cuda_kernel(std::move(load));
  auto stream = *device->create_stream();
  const Buffer memory = *device->allocate(8);
  CHECK(spin->launch(*stream, {{1}, {most}}, memory.data(), int64_t{1}));
  CHECK_FALSE(spin->launch(*stream, {{1}, {most + 1}}, memory.data(), int64_t{1}));
  CHECK(stream->synchronize());
}
