#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "jit/compilers.h"
#include "jit/cpu/device.h"
#include "jit/loader.h"
#include "tests/jit/elf_builder.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace laya::jit {
namespace {

using testing::code;
using testing::ElfBuilder;

LoadRequest request_for(std::string object) {
  LoadRequest request;
  request.name = "count{}@cpu";
  request.entry = "count";
  request.target = host_cpu_target();
  request.signature = {{"visits", ArgKind::kPointer}};
  request.object = std::move(object);
  return request;
}

/// A kernel that adds 1 to visits[block.x]: mov (%rdi), %rax; mov (%rax), %rax; mov (%rsi), %ecx;
/// lock incl (%rax,%rcx,4); ret
std::string counting_object() {
  ElfBuilder elf;
  elf.add_symbol("laya_launch", elf.add_code(code("48 8b 07 48 8b 00 8b 0e f0 ff 04 88 c3")), 0);
  return elf.build();
}

/// Compiles a whole source; null, with a message, where there is no compiler.
std::shared_ptr<const Kernel> compile(const std::string& source, Signature signature) {
  const auto compiler = make_llvm_compiler({});
  if (compiler->identity().empty()) {
    MESSAGE("[SKIP] " << compiler->unavailable_reason());
    return nullptr;
  }
  CompileRequest request;
  request.name = "test.cpp";
  request.source = "struct Block { unsigned x, y, z, nx, ny, nz, next_x; };\n" + source;
  request.entry = "laya_launch";
  request.target = host_cpu_target();
  request.options = compiler->options(request.target);
  auto output = compiler->compile(request);
  REQUIRE_MESSAGE(output, output.error().to_string());
  LoadRequest load = request_for(std::move(output->object));
  load.signature = std::move(signature);
  auto kernel = load_cpu_kernel(std::move(load));
  REQUIRE_MESSAGE(kernel, kernel.error().to_string());
  return *kernel;
}

std::unique_ptr<Stream> stream_of(const std::shared_ptr<Device>& device) {
  auto stream = device->create_stream();
  REQUIRE(stream);
  return *std::move(stream);
}

}  // namespace

TEST_CASE("the CPU says what it is") {
  const auto device = open_cpu_device(3);
  CHECK(device->processor_count() == 3);
  CHECK(device->target() == host_cpu_target());
  CHECK_FALSE(device->name().empty());
  CHECK_FALSE(device->has_graphs());
  CHECK(open_cpu_device(0)->processor_count() >= 1);
}

TEST_CASE("memory of the CPU is aligned and can be written") {
  const auto device = open_cpu_device(1);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{5} << 20}) {
    auto buffer = device->allocate(bytes);
    REQUIRE(buffer);
    CHECK(buffer->size() == bytes);
    CHECK(buffer->data() != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(buffer->data()) % 256 == 0);
    std::memset(buffer->data(), 1, bytes);
    CHECK(device->allocate_host(bytes));
  }
}

TEST_CASE("memory that the system does not have is an error") {
  const auto device = open_cpu_device(1);
  for (const size_t bytes : {std::numeric_limits<size_t>::max(), size_t{1} << 62}) {
    const auto buffer = device->allocate(bytes);
    REQUIRE_FALSE(buffer);
    CHECK(buffer.error().kind == ErrorKind::kDeviceError);
  }
}

TEST_CASE("a stream of the CPU copies and fills at once") {
  const auto device = open_cpu_device(1);
  const auto stream = stream_of(device);
  CHECK(&stream->device() == device.get());
  auto buffer = device->allocate(4);
  REQUIRE(buffer);
  const char text[4] = {'a', 'b', 'c', 'd'};
  char back[4] = {};
  CHECK(stream->copy_to_device(buffer->data(), text, 4));
  CHECK(stream->fill(buffer->as<char>() + 3, 'x', 1));
  CHECK(stream->copy_to_host(back, buffer->data(), 4));
  CHECK(std::string(back, 4) == "abcx");
  CHECK(stream->copy_to_device(nullptr, nullptr, 0));
  CHECK(stream->synchronize());
}

TEST_CASE("a stream of the CPU measures time and passes errors on") {
  const auto device = open_cpu_device(1);
  const auto stream = stream_of(device);
  int calls = 0;
  const auto time = stream->time_ms([&]() -> Result<void> {
    ++calls;
    return {};
  });
  REQUIRE(time);
  CHECK(*time >= 0);
  CHECK(calls == 1);
  const auto failed =
      stream->time_ms([]() -> Result<void> { return fail(ErrorKind::kDeviceError, "it broke"); });
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "it broke");
}

TEST_CASE("the CPU has no graphs") {
  const auto device = open_cpu_device(1);
  const auto stream = stream_of(device);
  const auto begun = stream->begin_capture();
  REQUIRE_FALSE(begun);
  CHECK(begun.error().kind == ErrorKind::kUnavailable);
  CHECK_FALSE(stream->end_capture());
}

TEST_CASE("a kernel is called once for each block of its grid") {
  auto kernel = load_cpu_kernel(request_for(counting_object()));
  REQUIRE_MESSAGE(kernel, kernel.error().to_string());
  for (const int threads : {1, 2, 5}) {
    const auto device = open_cpu_device(threads);
    const auto stream = stream_of(device);
    std::vector<int> visits(100, 0);
    CHECK((*kernel)->launch(*stream, {{100, 3, 2}, {}, 0}, visits.data()));
    CHECK(visits == std::vector<int>(100, 6));
  }
  CHECK((*kernel)->occupancy(128, 0) == 1);
}

TEST_CASE("an application's executor runs the grids, in no more tasks than it allows") {
  auto kernel = load_cpu_kernel(request_for(counting_object()));
  REQUIRE(kernel);
  std::atomic<int> calls{0}, most_tasks{0};
  const auto device = open_cpu_device(
      CpuThreads{.count = 3, .executor = [&](int count, void (*task)(void*, int), void* context) {
                   ++calls;
                   most_tasks = std::max<int>(most_tasks, count);
                   std::vector<std::jthread> threads;
                   for (int i = 1; i < count; ++i) threads.emplace_back([=] { task(context, i); });
                   task(context, 0);
                 }});
  CHECK(device->processor_count() == 3);
  const auto stream = stream_of(device);
  for (const uint32_t blocks : {0U, 1U, 2U, 3U, 100U}) {
    std::vector<int> visits(100, 0);
    CHECK((*kernel)->launch(*stream, {{blocks, 2, 1}, {}, 0}, visits.data()));
    for (uint32_t i = 0; i < 100; ++i) REQUIRE(visits[i] == (i < blocks ? 2 : 0));
  }
  CHECK(calls == 4);  // not for the empty grid
  CHECK(most_tasks == 3);
}

TEST_CASE("several threads launch on one executor at once") {
  auto kernel = load_cpu_kernel(request_for(counting_object()));
  REQUIRE(kernel);
  const auto device = open_cpu_device(
      CpuThreads{.count = 2, .executor = [](int count, void (*task)(void*, int), void* context) {
                   for (int i = 0; i < count; ++i) task(context, i);
                 }});
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&] {
        const auto stream = *device->create_stream();
        std::vector<int> visits(50, 0);
        for (int i = 0; i < 100; ++i) {
          if (!(*kernel)->launch(*stream, {{50}, {}, 0}, visits.data())) ++wrong;
        }
        if (visits != std::vector<int>(50, 100)) ++wrong;
      });
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a grid with a zero launches nothing") {
  auto kernel = load_cpu_kernel(request_for(counting_object()));
  REQUIRE(kernel);
  const auto device = open_cpu_device(2);
  const auto stream = stream_of(device);
  int visits = 0;
  for (const Dim3 grid : {Dim3{0, 1, 1}, Dim3{1, 0, 1}, Dim3{1, 1, 0}}) {
    CHECK((*kernel)->launch(*stream, {grid, {}, 0}, &visits));
  }
  CHECK(visits == 0);
}

TEST_CASE("a kernel outlives the object and the device that it was made with") {
  std::shared_ptr<const Kernel> kernel;
  {
    auto loaded = load_cpu_kernel(request_for(counting_object()));
    REQUIRE(loaded);
    kernel = *loaded;
  }
  int visits = 0;
  for (int round = 0; round < 2; ++round) {
    const auto device = open_cpu_device(2);
    const auto stream = stream_of(device);
    CHECK(kernel->launch(*stream, {{1}, {}, 0}, &visits));
  }
  CHECK(visits == 2);
}

TEST_CASE("each block is told its index and the grid") {
  const auto kernel = compile(
      "extern \"C\" void laya_launch(void* const* args, const Block* b) {\n"
      "  unsigned* out = *static_cast<unsigned* const*>(args[0]);\n"
      "  const unsigned i = b->x + b->nx * (b->y + b->ny * b->z);\n"
      "  out[i] = b->x + 100 * b->y + 10000 * b->z + 1000000 * (b->nx + b->ny + b->nz);\n}\n",
      {{"out", ArgKind::kPointer}});
  if (!kernel) return;
  const auto device = open_cpu_device(3);
  const auto stream = stream_of(device);
  std::vector<uint32_t> out(5 * 7 * 3, 0);
  REQUIRE(kernel->launch(*stream, {{5, 7, 3}, {}, 0}, out.data()));
  for (uint32_t i = 0; i < out.size(); ++i) {
    REQUIRE(out[i] == i % 5 + 100 * (i / 5 % 7) + 10000 * (i / 35) + 15000000);
  }
}

TEST_CASE("each block is told the x of the next one that its thread probably runs, or none") {
  const auto kernel = compile(
      "extern \"C\" void laya_launch(void* const* args, const Block* b) {\n"
      "  unsigned* out = *static_cast<unsigned* const*>(args[0]);\n"
      "  out[b->x + b->nx * b->y] = b->next_x;\n}\n",
      {{"out", ArgKind::kPointer}});
  if (!kernel) return;
  const auto one_by_one = [](int count, void (*task)(void*, int), void* context) {
    for (int i = 0; i < count; ++i) task(context, i);
  };
  // Threads claim a block at a time here, so each is thought to go on as many further as there are.
  for (const CpuThreads& threads :
       {CpuThreads{.count = 1}, CpuThreads{.count = 3}, CpuThreads{3, false, one_by_one}}) {
    const auto device = open_cpu_device(threads);
    const auto stream = stream_of(device);
    std::vector<uint32_t> out(5 * 7, 99);
    REQUIRE(kernel->launch(*stream, {{5, 7, 1}, {}, 0}, out.data()));
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t next = i + static_cast<size_t>(device->processor_count());
      REQUIRE(out[i] == (next < out.size() ? next % 5 : 5));
    }
  }
}

#if defined(__x86_64__)
TEST_CASE("an application's floating point mode does not reach kernels, and stays") {
  const auto kernel = compile(
      "extern \"C\" void laya_launch(void* const* args, const Block* b) {\n"
      "  float* x = *static_cast<float* const*>(args[0]);\n  x[b->x] *= 0.5f;\n}\n",
      {{"x", ArgKind::kPointer}});
  if (!kernel) return;
  const auto device = open_cpu_device(2);
  const auto stream = stream_of(device);
  std::vector<float> x(200, std::numeric_limits<float>::min());
  const unsigned before = _mm_getcsr();
  const unsigned flushing = before | 0x8040;
  _mm_setcsr(flushing);
  const auto launched = kernel->launch(*stream, {{200}, {}, 0}, x.data());
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(launched);
  CHECK(after == flushing);
  CHECK(x == std::vector<float>(200, std::numeric_limits<float>::min() / 2));
}
#endif

TEST_CASE("code for features that this CPU lacks is refused and they are named") {
  LoadRequest request = request_for(counting_object());
  request.target.name = "x86_64:future:+quantum,+sse2,+telepathy";
  const auto kernel = load_cpu_kernel(std::move(request));
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().kind == ErrorKind::kDeviceError);
  CHECK(kernel.error().message ==
        "count{}@cpu was compiled for features that this CPU lacks: quantum telepathy");
}

TEST_CASE("a damaged object is refused and its kernel named") {
  const auto kernel = load_cpu_kernel(request_for("this is no object"));
  REQUIRE_FALSE(kernel);
  CHECK(kernel.error().kind == ErrorKind::kDeviceError);
  CHECK(kernel.error().message.find("count{}@cpu: the object is damaged") == 0);
}

TEST_CASE("a grid of more blocks than can be counted is refused") {
  auto kernel = load_cpu_kernel(request_for(counting_object()));
  REQUIRE(kernel);
  const auto device = open_cpu_device(1);
  const auto stream = stream_of(device);
  int visits = 0;
  const auto launched =
      (*kernel)->launch(*stream, {{UINT32_MAX, UINT32_MAX, UINT32_MAX}, {}, 0}, &visits);
  REQUIRE_FALSE(launched);
  CHECK(launched.error().kind == ErrorKind::kBadInput);
  CHECK(visits == 0);
}

}  // namespace laya::jit
