#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "jit/compilers.h"
#include "jit/cpu/elf_object.h"

namespace laya::jit {
namespace {

/// The compiler, or null (with a message) where LLVM is not installed.
std::unique_ptr<Compiler> compiler_or_skip() {
  auto compiler = make_llvm_compiler({});
  if (!compiler->identity().empty()) return compiler;
  CHECK_FALSE(compiler->unavailable_reason().empty());
  MESSAGE("[SKIP] " << compiler->unavailable_reason());
  return nullptr;
}

constexpr const char* kLaunch =
    "extern \"C\" void laya_launch(void* const* a, const void*) { scale((float*)a[0]); }\n";

CompileRequest request_for(const Compiler& compiler, const std::string& source) {
  CompileRequest request;
  request.name = "scale.cpp";
  request.source = source + kLaunch;
  request.entry = "scale";
  request.target = host_cpu_target();
  request.options = compiler.options(request.target);
  return request;
}

std::string scale_by(int factor) {
  return "extern \"C\" void scale(float* x) {\n  for (int i = 0; i < 1000; ++i) x[i] *= " +
         std::to_string(factor) + ";\n}\n";
}

/// The log of a compilation that has to fail.
std::string failure_log(Compiler& compiler, const CompileRequest& request) {
  const auto output = compiler.compile(request);
  REQUIRE_FALSE(output);
  CHECK(output.error().kind == ErrorKind::kCompileFailed);
  CHECK(output.error().message.find("scale.cpp") == 0);
  return output.error().detail;
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

std::string memory_map() {
  std::ostringstream text;
  text << std::ifstream("/proc/self/maps").rdbuf();
  return text.str();
}

/// Runs one of the skipped tests in a process of its own; returns its wait status. Leaks are not
/// looked for in there.
int run_alone(const std::string& test) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    execl("/proc/self/exe", "jit_tests", "--no-skip", ("--test-case=" + test).c_str(),
          static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("a source becomes an object with its entry and the launch function") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  const auto output = compiler->compile(request_for(*compiler, scale_by(2)));
  REQUIRE_MESSAGE(output, output.error().to_string());
  CHECK(output->log.empty());
  const auto object = ElfObject::parse(output->object);
  REQUIRE(object);
  CHECK(object->find("scale") != nullptr);
  CHECK(object->find("laya_launch") != nullptr);
}

TEST_CASE("helper: the identity alone" * doctest::skip()) {
  const auto compiler = make_llvm_compiler({});
  CHECK_FALSE(compiler->identity().empty());
  CHECK_FALSE(compiler->options(host_cpu_target()).empty());
  CHECK_FALSE(has(memory_map(), "LLVM"));
  CHECK_FALSE(has(memory_map(), "llvm"));
  CHECK_FALSE(has(memory_map(), "clang"));
}

TEST_CASE("asking for the compiler's identity does not load it") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  // Alone, since other tests load the compiler.
  CHECK(run_alone("helper: the identity alone") == 0);
}

TEST_CASE("the identity holds the build ids of the component, of Clang and of LLVM") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  const std::string& identity = compiler->identity();
  CHECK(identity.starts_with("llvm "));
  CHECK(std::count(identity.begin(), identity.end(), '+') == 2);
  CHECK(identity == make_llvm_compiler({})->identity());
}

TEST_CASE("the options name the target and nothing of this machine's disk") {
  const auto compiler = make_llvm_compiler({});
  const Target target{Backend::kCpu, "x86_64:znver4:+avx2,+avx512f"};
  const auto options = compiler->options(target);
  const auto follows = [&](const char* option, const char* value) {
    const auto at = std::find(options.begin(), options.end(), value);
    return at != options.begin() && at != options.end() && *(at - 1) == option;
  };
  CHECK(follows("-target-feature", "+avx2"));
  CHECK(follows("-target-feature", "+avx512f"));
  CHECK(follows("-tune-cpu", "znver4"));
  CHECK(follows("-triple", "x86_64-unknown-linux-gnu"));
  CHECK(std::none_of(options.begin(), options.end(),
                     [](const std::string& option) { return has(option, "/"); }));
  CHECK(options == compiler->options(target));
  CHECK(options != compiler->options({Backend::kCpu, "x86_64:znver4:+avx2"}));
}

TEST_CASE("the features of the target decide which instructions are used") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  CompileRequest request = request_for(*compiler,
                                       "#if defined(__AVX2__)\n#error has avx2\n#elif "
                                       "defined(__SSE2__)\n#error sse2 only\n#endif\n");
  request.options = compiler->options({Backend::kCpu, "x86_64:znver4:+avx2"});
  CHECK(has(failure_log(*compiler, request), "has avx2"));
  // The name of the CPU alone allows nothing.
  request.options = compiler->options({Backend::kCpu, "x86_64:znver4:"});
  CHECK(has(failure_log(*compiler, request), "sse2 only"));
}

TEST_CASE("the same request gives the same bytes, on many threads too") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  constexpr int kThreads = 4;
  std::vector<std::string> parallel(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto output = compiler->compile(request_for(*compiler, scale_by(i)));
      if (output) parallel[static_cast<size_t>(i)] = output->object;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) {
    const auto output = compiler->compile(request_for(*compiler, scale_by(i)));
    REQUIRE(output);
    CHECK(output->object == parallel[static_cast<size_t>(i)]);
  }
}

TEST_CASE("an error names file, line and column") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  const std::string log = failure_log(
      *compiler, request_for(*compiler, "extern \"C\" void scale(float* x) {\n  y;\n}\n"));
  CHECK(has(log, "scale.cpp:2:3: error: use of undeclared identifier 'y'"));
}

TEST_CASE("a warning is in the log of a success") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  const auto output =
      compiler->compile(request_for(*compiler, "#warning slow path\n" + scale_by(2)));
  REQUIRE(output);
  CHECK(has(output->log, "slow path"));
}

TEST_CASE("headers are found between quotes and brackets, also from headers") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  CompileRequest request = request_for(*compiler,
                                       "#include \"a.h\"\n#include <sub/b.h>\n"
                                       "extern \"C\" void scale(float* x) { *x = A + B; }\n");
  request.headers = {{"a.h", "#pragma once\n#include \"sub/b.h\"\nconstexpr int A = 1;\n"},
                     {"sub/b.h", "#pragma once\n#include \"a.h\"\nconstexpr int B = 2;\n"}};
  const auto output = compiler->compile(request);
  REQUIRE_MESSAGE(output, output.error().to_string());

  request.headers[1].text = "#error in b\n";
  CHECK(has(failure_log(*compiler, request), "sub/b.h:1:2: error: in b"));
}

TEST_CASE("two different headers of one name are an error") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  CompileRequest request = request_for(*compiler, scale_by(2));
  request.headers = {{"a.h", "int a;"}, {"a.h", "int b;"}};
  CHECK(has(failure_log(*compiler, request), "'a.h'"));
}

TEST_CASE("nothing on the disk is visible to a kernel") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  for (const char* include : {"<stdint.h>", "<immintrin.h>", "</usr/include/stdint.h>",
                              "\"/etc/passwd\"", "\"../a.h\""}) {
    const std::string source = "#include " + std::string(include) + "\n" + scale_by(2);
    CHECK(has(failure_log(*compiler, request_for(*compiler, source)), "file not found"));
  }
}

TEST_CASE("a source without the functions that a kernel needs is refused") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  CompileRequest request = request_for(*compiler, scale_by(2));
  request.entry = "scales";
  auto output = compiler->compile(request);
  REQUIRE_FALSE(output);
  CHECK(has(output.error().message, "'scales'"));
  request.entry = "scale";
  request.source = scale_by(2);
  output = compiler->compile(request);
  REQUIRE_FALSE(output);
  CHECK(has(output.error().message, "'laya_launch'"));
}

TEST_CASE("an option that Clang does not know is an error") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  CompileRequest request = request_for(*compiler, scale_by(2));
  request.options.emplace_back("-make-it-fast");
  CHECK(has(failure_log(*compiler, request), "-make-it-fast"));
}

TEST_CASE("what the code generator refuses is in the log") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  const std::string log = failure_log(
      *compiler, request_for(*compiler, "extern \"C\" void scale(float*) { asm(\"go fast\"); }\n"));
  CHECK(has(log, "error: "));
  CHECK(has(log, "invalid instruction mnemonic 'go'"));
}

TEST_CASE("helper: a fatal error of LLVM" * doctest::skip()) {
  const auto compiler = make_llvm_compiler({});
  // An instruction of another back end, which LLVM cannot report as a diagnostic.
  const std::string foreign =
      "extern \"C\" float rcp(float) asm(\"llvm.amdgcn.rcp.f32\");\n"
      "extern \"C\" void scale(float* x) { *x = rcp(*x); }\n";
  for (int round = 0; round < 2; ++round) {
    CHECK(has(failure_log(*compiler, request_for(*compiler, foreign)), "Cannot select"));
    CHECK(compiler->compile(request_for(*compiler, scale_by(2))));
  }
}

TEST_CASE("where LLVM would end the process, only the compilation fails") {
  const auto compiler = compiler_or_skip();
  if (!compiler) return;
  // Alone, since what LLVM had allocated is lost.
  CHECK(run_alone("helper: a fatal error of LLVM") == 0);
}

TEST_CASE("a target that is not for the CPU is refused") {
  const auto compiler = make_llvm_compiler({});
  CompileRequest request = request_for(*compiler, scale_by(2));
  request.target = {Backend::kCuda, "sm_90a"};
  CHECK_FALSE(compiler->compile(request));
  CHECK(compiler->options(request.target).empty());
}

}  // namespace laya::jit
