#include "jit/cuda/cubin.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <sstream>

#include "tests/jit/cuda_support.h"

using namespace laya;
using namespace laya::jit;
using namespace laya::jit::cuda;
using namespace laya::test;

namespace {

// Kernels that differ in what they need: shared memory, a stack, calls, constants, bounds, spills.
const std::string kKernels = R"(
__constant__ float table[100];

__device__ __noinline__ float deep(float* p, int n) {
  float local[64];
  for (int i = 0; i < 64; i++) local[i] = p[i * n];
  float s = 0;
  for (int i = 0; i < n; i++) s += local[(i * 7) & 63];
  return s;
}

extern "C" __global__ void plain(float* y) { y[threadIdx.x] = 1; }

extern "C" __global__ void __launch_bounds__(128) shared(float* y) {
  __shared__ float s[1000];
  s[threadIdx.x] = y[threadIdx.x] * table[threadIdx.x & 63];
  __syncthreads();
  y[threadIdx.x] = s[999 - threadIdx.x];
}

extern "C" __global__ void calls(float* y, int n) { y[threadIdx.x] = deep(y, n) + deep(y + 1, n); }

extern "C" __global__ void __launch_bounds__(1024) spills(float* y, int n) {
  float v[160];
#pragma unroll
  for (int i = 0; i < 160; i++) v[i] = y[i * n];
#pragma unroll 1
  for (int k = 0; k < n; k++) {
#pragma unroll
    for (int i = 0; i < 160; i++) v[i] = v[i] * v[(i * 37 + 1) % 160] + v[(i * 5 + 3) % 160];
  }
#pragma unroll
  for (int i = 0; i < 160; i++) y[i * n + 1] = v[i];
}
)";

const char* const kEntries[] = {"plain", "shared", "calls", "spills"};

/// All kernels for one target, with the report of ptxas in the log; compiled once.
const CompileOutput& compile_all(const std::string& target) {
  static std::map<std::string, CompileOutput> compiled;
  const auto found = compiled.find(target);
  if (found != compiled.end()) return found->second;
  auto wanted = request(kKernels, "plain", target);
  wanted.options.push_back("--ptxas-options=-v");
  auto output = nvrtc().compile(wanted);
  REQUIRE_MESSAGE(output, output.error().to_string());
  return compiled.emplace(target, *std::move(output)).first->second;
}

/// What ptxas reports about each kernel: "... Compiling entry function 'k' ...", then lines of
/// "N bytes stack frame" and "Used N registers, ..., N bytes cumulative stack size, N bytes smem".
KernelAttributes reported(const std::string& log, const std::string& entry) {
  std::istringstream lines(log.substr(log.find("entry function '" + entry + "'")));
  KernelAttributes out;
  const auto number_before = [](const std::string& line, const std::string& unit) {
    const size_t end = line.find(unit);
    if (end == std::string::npos) return 0;
    const size_t begin = line.find_last_not_of("0123456789", end - 1) + 1;
    return std::stoi("0" + line.substr(begin, end - begin));
  };
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.find("entry function") == std::string::npos) {
    if (line.find("Used ") != std::string::npos) {
      out.registers = number_before(line, " registers");
      out.static_shared_bytes = number_before(line, " bytes smem");
    }
    const int stack = std::max(number_before(line, " bytes stack frame"),
                               number_before(line, " bytes cumulative stack size"));
    out.local_bytes = std::max<int64_t>(out.local_bytes, stack);
  }
  return out;
}

}  // namespace

TEST_CASE("a cubin's attributes are what ptxas reports") {
  if (!has_nvrtc()) return;
  for (const char* target : {"sm_75", "sm_80", "sm_90a", "sm_100a"}) {
    const CompileOutput& output = compile_all(target);
    for (const char* entry : kEntries) {
      CAPTURE(target);
      CAPTURE(entry);
      const auto cubin = read_cubin(output.object, entry);
      REQUIRE_MESSAGE(cubin, cubin.error().to_string());
      const KernelAttributes expected = reported(output.log, entry);
      CHECK(expected.registers > 0);
      CHECK(cubin->capability == compute_capability({Backend::kCuda, target}));
      CHECK(cubin->attributes.registers == expected.registers);
      CHECK(cubin->attributes.local_bytes == expected.local_bytes);
      CHECK(cubin->attributes.static_shared_bytes == expected.static_shared_bytes);
    }
    CHECK(read_cubin(output.object, "calls")->attributes.local_bytes >= 256);
    CHECK(read_cubin(output.object, "spills")->attributes.local_bytes > 0);
    CHECK(read_cubin(output.object, "shared")->attributes.static_shared_bytes == 4000);
  }
}

TEST_CASE("the largest block follows the launch bounds and the registers") {
  if (!has_nvrtc()) return;
  const CompileOutput& output = compile_all("sm_80");
  CHECK(read_cubin(output.object, "shared")->attributes.max_threads == 128);
  CHECK(read_cubin(output.object, "plain")->attributes.max_threads == 1024);

  // Without bounds a kernel may get so many registers that 1024 threads do not fit.
  std::string wide = kKernels;
  wide.replace(wide.find("__launch_bounds__(1024)"), 23, "");
  auto unbounded = nvrtc().compile(request(wide, "spills"));
  REQUIRE(unbounded);
  const KernelAttributes& attributes = unbounded->attributes;
  REQUIRE(attributes.registers > 64);
  CHECK(attributes.max_threads < 1024);
  CHECK(attributes.max_threads % 32 == 0);
  CHECK(attributes.max_threads * attributes.registers <= 65536);
}

TEST_CASE("constants count once for the module and once for the kernel") {
  if (!has_nvrtc()) return;
  const CompileOutput& output = compile_all("sm_80");
  // 400 bytes of table, 352 before the arguments on this architecture, 8 of the pointer.
  CHECK(read_cubin(output.object, "plain")->attributes.constant_bytes == 400 + 352 + 8);
}

TEST_CASE("a kernel that is not in the cubin is named") {
  if (!has_nvrtc()) return;
  const CompileOutput& output = compile_all("sm_80");
  for (const char* entry : {"", "plai", "plain2", "deep", "table"}) {
    CAPTURE(entry);
    const auto cubin = read_cubin(output.object, entry);
    REQUIRE_FALSE(cubin);
    CHECK(cubin.error().kind == ErrorKind::kBadInput);
    CHECK(cubin.error().message.find("'" + std::string(entry) + "'") != std::string::npos);
  }
}

TEST_CASE("bytes that are no cubin are refused") {
  CHECK_FALSE(read_cubin("", "k"));
  CHECK_FALSE(
      read_cubin("\x7f"
                 "ELF",
                 "k"));
  CHECK_FALSE(read_cubin(std::string(40160, '\x7f'), "k"));
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::string program(1 << 16, '\0');
  self.read(program.data(), static_cast<std::streamsize>(program.size()));
  CHECK(read_cubin(program, "main").error().message.find("GPU") != std::string::npos);
}

TEST_CASE("a cubin that is cut off anywhere is refused") {
  if (!has_nvrtc()) return;
  const std::string& object = compile_all("sm_90a").object;
  for (size_t size = 0; size < object.size(); size += size < 40160 ? 1 : 61) {
    CAPTURE(size);
    // An allocation of exactly this size, so that a read behind it is seen by the sanitizer.
    const std::string cut(object, 0, size);
    REQUIRE_FALSE(read_cubin(cut, "spills"));
  }
}

TEST_CASE("whatever byte of a cubin is damaged, reading stays within it") {
  if (!has_nvrtc()) return;
  const std::string& object = compile_all("sm_80").object;
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = object;
    // The tables at the ends of the file are where a flip matters.
    const size_t span = round % 2 == 0 ? damaged.size() : std::min<size_t>(damaged.size(), 40160);
    const size_t at = random() % span;
    damaged[at] = static_cast<char>(random());
    const auto cubin = read_cubin(damaged, "shared");
    if (!cubin) {
      ++refused;
      REQUIRE(cubin.error().kind == ErrorKind::kBadInput);
      continue;
    }
    REQUIRE(cubin->attributes.registers >= 0);
    REQUIRE(cubin->attributes.max_threads >= 0);
    REQUIRE(cubin->attributes.max_threads <= 1024);
    REQUIRE(cubin->attributes.static_shared_bytes >= 0);
    REQUIRE(cubin->attributes.constant_bytes <= static_cast<int64_t>(damaged.size()) * 4);
  }
  CHECK(refused > 0);
  CHECK(refused < 20000);
}
