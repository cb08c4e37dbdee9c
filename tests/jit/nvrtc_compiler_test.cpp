#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "jit/compilers.h"
#include "jit/cuda/deep_stack.h"
#include "jit/cuda/nvrtc_library.h"
#include "tests/jit/cuda_support.h"

using namespace laya;
using namespace laya::jit;
using namespace laya::test;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("saxpy compiles to a cubin for every generation of GPU") {
  if (!has_nvrtc()) return;
  for (const char* target : {"sm_75", "sm_80", "sm_86", "sm_90a", "sm_100a", "sm_120a"}) {
    CAPTURE(target);
    auto output = nvrtc().compile(request(kSaxpy, "saxpy", target));
    REQUIRE_MESSAGE(output, output.error().to_string());
    CHECK(
        output->object.starts_with("\x7f"
                                   "ELF"));
    CHECK(output->attributes.registers > 0);
    CHECK(output->attributes.local_bytes == 0);
    CHECK(output->attributes.static_shared_bytes == 0);
    CHECK(output->attributes.constant_bytes > 0);
    CHECK(output->attributes.max_threads == 1024);
  }
}

TEST_CASE("a kernel that does not compile fails with the whole log") {
  if (!has_nvrtc()) return;
  auto output = nvrtc().compile(
      request("#line 1 \"saxpy.cu\"\nextern \"C\" __global__ void saxpy() {\n  first_mistake();\n"
              "  second_mistake();\n}\n",
              "saxpy"));
  REQUIRE_FALSE(output);
  CHECK(output.error().kind == ErrorKind::kCompileFailed);
  CHECK(contains(output.error().message, "saxpy.cu(2)"));
  CHECK(contains(output.error().detail, "first_mistake"));
  CHECK(contains(output.error().detail, "second_mistake"));
}

TEST_CASE("warnings of a successful compile are in its log") {
  if (!has_nvrtc()) return;
  auto output = nvrtc().compile(
      request("extern \"C\" __global__ void k(int* p) { int never_used; *p = 1; }", "k"));
  REQUIRE(output);
  CHECK(contains(output->log, "never_used"));
  CHECK(output->log.find('\0') == std::string::npos);
}

TEST_CASE("notes about lost speed reach the log callback") {
  if (!has_nvrtc()) return;
  std::vector<std::string> warnings;
  auto compiler = make_nvrtc_compiler({}, [&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) warnings.emplace_back(line);
  });
  // setmaxnreg has no effect without a bound on the block: ptxas says so (C7508).
  auto output =
      compiler->compile(request("extern \"C\" __global__ void k(int* p) {\n"
                                "  asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\");\n"
                                "  *p = 1;\n}\n",
                                "k", "sm_90a"));
  REQUIRE_MESSAGE(output, output.error().to_string());
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], "k.cu@sm_90a"));
  CHECK(contains(warnings[0], "setmaxnreg"));
}

TEST_CASE("headers come from memory and from nowhere else") {
  if (!has_nvrtc()) return;
  const std::string source =
      "#include \"deep/answer.cuh\"\n"
      "extern \"C\" __global__ void k(int* p) { *p = kAnswer; }\n";
  auto with = request(source, "k");
  with.headers = {{"deep/answer.cuh", "#include <base.cuh>\n"},
                  {"base.cuh", "constexpr int kAnswer = 42;\n"}};
  CHECK(nvrtc().compile(with));

  auto missing = nvrtc().compile(request(source, "k"));
  REQUIRE_FALSE(missing);
  CHECK(missing.error().kind == ErrorKind::kCompileFailed);
  CHECK(contains(missing.error().message, "deep/answer.cuh"));

  CHECK_FALSE(nvrtc().compile(request("#include <cuda_runtime.h>\n" + kSaxpy, "saxpy")));
}

TEST_CASE("a source without the entry fails") {
  if (!has_nvrtc()) return;
  for (const char* source : {"", "__global__ void k() {}", "extern \"C\" __device__ void k() {}",
                             "extern \"C\" __global__ void other() {}"}) {
    CAPTURE(source);
    auto output = nvrtc().compile(request(source, "k"));
    REQUIRE_FALSE(output);
    CHECK(output.error().kind == ErrorKind::kCompileFailed);
    CHECK(contains(output.error().message, "k.cu"));
  }
}

TEST_CASE("targets that NVRTC cannot make machine code for are explained") {
  if (!has_nvrtc()) return;
  auto virtual_target = nvrtc().compile(request(kSaxpy, "saxpy", "compute_90"));
  REQUIRE_FALSE(virtual_target);
  CHECK(virtual_target.error().kind == ErrorKind::kBadSpec);
  CHECK(contains(virtual_target.error().message, "sm_"));

  auto old_target = nvrtc().compile(request(kSaxpy, "saxpy", "sm_20"));
  REQUIRE_FALSE(old_target);
  CHECK(old_target.error().kind == ErrorKind::kUnavailable);
  CHECK(contains(old_target.error().message, "sm_20"));
}

TEST_CASE("an option that the library does not know is reported with its version") {
  if (!has_nvrtc()) return;
  auto unknown = request(kSaxpy, "saxpy");
  unknown.options.push_back("--no-such-option");
  auto output = nvrtc().compile(unknown);
  REQUIRE_FALSE(output);
  CHECK(output.error().kind == ErrorKind::kUnavailable);
  CHECK(contains(output.error().message, "--no-such-option"));
  CHECK(contains(output.error().message, "NVRTC 1"));
}

TEST_CASE("compiles on many threads give the same bytes as alone") {
  if (!has_nvrtc()) return;
  const auto alone = nvrtc().compile(request(kSaxpy, "saxpy", "sm_90a"));
  REQUIRE(alone);
  // A second compiler, so that its library is opened by several threads at once.
  const auto compiler = make_nvrtc_compiler({}, {});
  std::vector<std::string> objects(6);
  std::vector<std::thread> threads;
  for (std::string& object : objects) {
    threads.emplace_back([&] {
      auto output = compiler->compile(request(kSaxpy, "saxpy", "sm_90a"));
      if (output) object = std::move(output->object);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& object : objects) CHECK((object == alone->object));
}

TEST_CASE("the deepest nesting allowed compiles from a thread with a small stack") {
  if (!has_nvrtc()) return;
  const std::string deep =
      "extern \"C\" __global__ void k(int* p) { *p = " + std::string(998, '(') + "1" +
      std::string(998, ')') + "; }";
  bool is_compiled = false;
  cuda::run_with_stack(size_t{256} << 10,
                       [&] { is_compiled = nvrtc().compile(request(deep, "k")).has_value(); });
  CHECK(is_compiled);
}

TEST_CASE("the options of a target are canonical and name it") {
  const auto options = nvrtc().options({Backend::kCuda, "sm_90a"});
  CHECK(options == nvrtc().options({Backend::kCuda, "sm_90a"}));
  CHECK(options != nvrtc().options({Backend::kCuda, "sm_90"}));
  CHECK(std::count(options.begin(), options.end(), "-arch=sm_90a") == 1);
  CHECK(std::count(options.begin(), options.end(), "--no-cache") == 1);
  CHECK(std::count(options.begin(), options.end(), "--modify-stack-limit=false") == 1);
}

TEST_CASE("a compiler that is not there says what to install") {
  const auto compiler = make_nvrtc_compiler("/nonexistent/libnvrtc.so.13", {});
  CHECK(compiler->identity().empty());
  CHECK_FALSE(compiler->unavailable_reason().empty());
  auto output = compiler->compile(request(kSaxpy, "saxpy"));
  REQUIRE_FALSE(output);
  CHECK(output.error().kind == ErrorKind::kUnavailable);
}

TEST_CASE("in a fresh process: NVRTC is mapped by the first compile" * doctest::skip()) {
  CHECK_FALSE(nvrtc().identity().empty());
  CHECK(nvrtc().unavailable_reason().empty());
  CHECK_FALSE(nvrtc().options({Backend::kCuda, "sm_80"}).empty());
  REQUIRE_FALSE(is_mapped("nvrtc"));
  REQUIRE(nvrtc().compile(request(kSaxpy, "saxpy")));
  CHECK(is_mapped("libnvrtc.so"));
  CHECK(is_mapped("libnvrtc-builtins.so"));
}

TEST_CASE("NVRTC is not mapped before the first compile") {
  if (!has_nvrtc()) return;
  const auto run = run_in_fresh_process("in a fresh process: NVRTC is mapped by the first compile");
  CHECK_MESSAGE(run.status == 0, run.output);
  CHECK(contains(run.output, "1 passed"));
}
