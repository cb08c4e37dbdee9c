// Devices, memory and the driver. Everything but the first cases needs a GPU.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "jit/cuda/architecture.h"
#include "jit/device.h"
#include "tests/jit/cuda_support.h"

using namespace laya;
using namespace laya::jit;
using namespace laya::test;

TEST_CASE("targets have the suffix that gives all instructions") {
  CHECK(cuda::target_of(75).name == "sm_75");
  CHECK(cuda::target_of(89).name == "sm_89");
  CHECK(cuda::target_of(90).name == "sm_90a");
  CHECK(cuda::target_of(103).name == "sm_103a");
  CHECK(cuda::target_of(120).backend == Backend::kCuda);
}

TEST_CASE("code runs on its own generation from its own revision on, with a suffix nowhere else") {
  const auto runs = [](const char* target, int capability) {
    return cuda::runs_on({Backend::kCuda, target}, capability);
  };
  CHECK(runs("sm_80", 80));
  CHECK(runs("sm_80", 86));
  CHECK_FALSE(runs("sm_86", 80));
  CHECK_FALSE(runs("sm_80", 90));
  CHECK(runs("sm_90a", 90));
  CHECK_FALSE(runs("sm_100a", 103));
  CHECK(runs("sm_100f", 103));
  CHECK_FALSE(runs("sm_100f", 110));
}

TEST_CASE("without a GPU the reason says what is missing") {
  auto device = open_cuda_device(0);
  if (device) return;
  CHECK(device.error().kind == ErrorKind::kUnavailable);
  CHECK_FALSE(device.error().message.empty());
  // The same answer again, not a crash or a second attempt that ends otherwise.
  CHECK(open_cuda_device(0).error().message == device.error().message);
}

TEST_CASE("in a fresh process: the driver is mapped by the first use" * doctest::skip()) {
  REQUIRE_FALSE(is_mapped("libcuda.so"));
  const auto device = open_cuda_device(0);
  CHECK(is_mapped("libcuda.so") == device.has_value());
}

TEST_CASE("the driver is not mapped before its first use") {
  const auto run =
      run_in_fresh_process("in a fresh process: the driver is mapped by the first use");
  CHECK_MESSAGE(run.status == 0, run.output);
  CHECK(run.output.find("1 passed") != std::string::npos);
}

TEST_CASE("a GPU describes itself and is opened once") {
  const auto device = gpu();
  if (!device) return;
  CHECK_FALSE(device->name().empty());
  CHECK(device->processor_count() > 0);
  CHECK(device->has_graphs());
  CHECK(compute_capability(device->target()) >= 75);
  CHECK(*open_cuda_device(0) == device);
  for (const int ordinal : {-1, 1000}) {
    const auto other = open_cuda_device(ordinal);
    REQUIRE_FALSE(other);
    CHECK(other.error().kind == ErrorKind::kUnavailable);
  }
}

TEST_CASE("bytes go to the GPU and come back") {
  const auto device = gpu();
  if (!device) return;
  auto stream = *device->create_stream();
  std::vector<int> sent(100'000), received(sent.size());
  std::iota(sent.begin(), sent.end(), 7);
  const size_t bytes = sent.size() * sizeof(int);
  const Buffer memory = *device->allocate(bytes);
  CHECK(reinterpret_cast<uintptr_t>(memory.data()) % 256 == 0);
  CHECK(memory.size() == bytes);
  REQUIRE(stream->copy_to_device(memory.data(), sent.data(), bytes));
  REQUIRE(stream->copy_to_host(received.data(), memory.data(), bytes));
  REQUIRE(stream->synchronize());
  CHECK((received == sent));

  const Buffer pinned = *device->allocate_host(bytes);
  REQUIRE(stream->fill(memory.data(), 0xAB, bytes - 4));
  REQUIRE(stream->copy_to_host(pinned.data(), memory.data(), bytes));
  REQUIRE(stream->synchronize());
  const std::vector<int> filled(sent.size() - 1, static_cast<int>(0xABABABAB));
  CHECK(std::memcmp(pinned.data(), filled.data(), bytes - 4) == 0);
  CHECK(pinned.as<int>()[sent.size() - 1] == sent.back());
}

TEST_CASE("empty buffers and copies of nothing are fine") {
  const auto device = gpu();
  if (!device) return;
  auto stream = *device->create_stream();
  const auto nothing = device->allocate(0);
  REQUIRE(nothing);
  CHECK(nothing->size() == 0);
  CHECK(device->allocate_host(0));
  CHECK(stream->copy_to_device(nullptr, nullptr, 0));
  CHECK(stream->copy_to_host(nullptr, nullptr, 0));
  CHECK(stream->fill(nullptr, 0, 0));
}

TEST_CASE("too large an allocation fails with its size and the driver's error") {
  const auto device = gpu();
  if (!device) return;
  const auto memory = device->allocate(size_t{1} << 50);
  REQUIRE_FALSE(memory);
  CHECK(memory.error().kind == ErrorKind::kDeviceError);
  CHECK(memory.error().message.find("CUDA_ERROR_OUT_OF_MEMORY (2)") != std::string::npos);
  CHECK(memory.error().message.find("1125899906842624") != std::string::npos);
  CHECK(device->allocate(16));
}

TEST_CASE("freed memory can be had again") {
  const auto device = gpu();
  if (!device) return;
  // A terabyte in all: without freeing, any GPU runs out.
  for (int i = 0; i < 4096; ++i) REQUIRE(device->allocate(size_t{256} << 20));
}

TEST_CASE("in a fresh process: a child of fork gets an error and destroys handles in peace" *
          doctest::skip()) {
  auto device = gpu();
  REQUIRE(device);
  auto memory = device->allocate(1024);
  auto stream = device->create_stream();
  const pid_t child = fork();
  if (child == 0) {
    const bool is_refused = !open_cuda_device(0).has_value();
    memory = Buffer();
    stream->reset();
    _exit(is_refused ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(device->allocate(1024));
}

TEST_CASE("a process that was forked after the driver was used gets an error") {
  if (!gpu()) return;
  const auto run = run_in_fresh_process(
      "in a fresh process: a child of fork gets an error and destroys handles in peace");
  CHECK_MESSAGE(run.status == 0, run.output);
}

namespace {

// Destroyed after main(), when the driver may be gone.
struct {
  std::shared_ptr<Device> device;
  Buffer memory;
  std::unique_ptr<Stream> stream;
} g_leftovers;

}  // namespace

TEST_CASE("in a fresh process: handles with static lifetime" * doctest::skip()) {
  g_leftovers.device = gpu();
  REQUIRE(g_leftovers.device);
  g_leftovers.memory = *g_leftovers.device->allocate(1024);
  g_leftovers.stream = *g_leftovers.device->create_stream();
}

TEST_CASE("handles that outlive main() do no harm") {
  if (!gpu()) return;
  const auto run = run_in_fresh_process("in a fresh process: handles with static lifetime");
  CHECK_MESSAGE(run.status == 0, run.output);
}

TEST_CASE("a thread that never touched CUDA can use a device at once") {
  const auto device = gpu();
  if (!device) return;
  bool is_good = false;
  std::thread([&] {
    auto memory = device->allocate(64);
    auto stream = device->create_stream();
    is_good =
        memory && stream && (*stream)->fill(memory->data(), 1, 64) && (*stream)->synchronize();
  }).join();
  CHECK(is_good);
}
