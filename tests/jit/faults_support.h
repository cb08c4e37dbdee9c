// What the tests of faults share: processes with a real store and either fake compilers, where
// counters are all that matters, or an engine whose kernel is launched.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "jit/builder.h"
#include "jit/engine.h"
#include "tests/cache/fault_table.h"
#include "tests/jit/fake_compiler.h"

namespace laya::test {

using cache::test::fault_row;
using cache::test::FaultRow;

inline constexpr const char* kTemplate =
    "//! entry  twice\n//! param N int 1..64\n//! arg a ptr\n#include \"own.cuh\"\nint n = N;\n";

/// A process with fake compilers and a real store.
struct FakeProcess {
  explicit FakeProcess(const std::filesystem::path& directory,
                       jit::JitMode mode = jit::JitMode::kAuto, std::string header = "int own;",
                       std::string text = kTemplate) {
    cache::StoreOptions store;
    store.directory = directory;
    store.busy_timeout = std::chrono::milliseconds(2);
    auto fake = std::make_unique<FakeCompiler>(jit::Backend::kCuda);
    compiler = fake.get();
    auto library = jit::TemplateLibrary::create({}, {});
    REQUIRE(library);
    builder = std::make_unique<jit::Builder>(*std::move(library), cache::Store::open(store),
                                             cache::Layers({}, {}), std::move(fake),
                                             std::make_unique<FakeCompiler>(jit::Backend::kCpu),
                                             jit::Builder::Policy{mode, false}, LogFn{});
    builder->add_header("own.cuh", jit::Backend::kCuda, std::move(header));
    REQUIRE(builder->add_template("twice", jit::Backend::kCuda, std::move(text)));
  }

  FakeCompiler* compiler = nullptr;
  std::unique_ptr<jit::Builder> builder;
};

inline jit::KernelSpec twice(int64_t n = 8, const char* target = "sm_80") {
  return jit::KernelSpec("twice", {jit::Backend::kCuda, target}).set("N", n);
}

/// The exit status of a child that runs `body`; a child that hangs is ended by a signal.
inline int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    ::_exit(body());
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

inline constexpr const char* kScale =
    "//! entry  scale\n//! param N int 1..1000\n//! arg x ptr\n//! arg n i32\n"
    "extern \"C\" void scale(float* x, int n, Block block) {\n"
    "  const int i = block.x;\n  if (i < n) x[i] *= N;\n}\n";

inline jit::KernelSpec scale() {
  return jit::KernelSpec("scale", jit::host_cpu_target()).set("N", 3);
}

inline std::shared_ptr<jit::Engine> make_engine(const std::filesystem::path& directory) {
  jit::Options options;
  options.cache_dir = directory;
  auto engine = jit::Engine::create(options);
  REQUIRE(engine);
  REQUIRE((*engine)->add_template("scale", jit::Backend::kCpu, kScale));
  return *std::move(engine);
}

inline bool skipped(jit::Engine& engine) {
  if (!engine.compiler(jit::Backend::kCpu).identity().empty()) return false;
  std::cout << "[SKIP] " << engine.compiler(jit::Backend::kCpu).unavailable_reason() << "\n";
  return true;
}

/// Gets the kernel, runs it and counts into `row`.
inline void launch(jit::Engine& engine, FaultRow& row) {
  row.failed_launches = std::max<int64_t>(row.failed_launches, 0);
  const auto kernel = engine.kernel(scale());
  const auto stream = jit::open_cpu_device(1)->create_stream();
  std::array<float, 5> x = {1, 2, 3, 4, 5};
  float* const data = x.data();
  if (!kernel || !stream || !(*kernel)->launch(**stream, {{8, 1, 1}}, data, 5)) {
    ++row.failed_launches;
    return;
  }
  if (x != std::array<float, 5>{3, 6, 9, 12, 15}) ++row.wrong;
}

}  // namespace laya::test
