// The engine on the CPU backend, with the real compiler. Counters with fakes: builder_test.cpp.
#include "jit/engine.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>

#include <atomic>
#include <barrier>
#include <iostream>
#include <thread>

#include "tests/temp_dir.h"

using namespace laya;
using namespace laya::jit;

namespace {

constexpr const char* kScale =
    "//! entry  scale\n//! param N int 1..1000\n//! arg x ptr\n//! arg n i32\n"
    "extern \"C\" void scale(float* x, int n, Block block) {\n"
    "  const int i = block.x;\n  if (i < n) x[i] *= N;\n}\n";

std::shared_ptr<Engine> make_engine(const std::filesystem::path& dir) {
  Options options;
  options.cache_dir = dir;
  options.jobs = 2;
  auto engine = Engine::create(options);
  REQUIRE(engine);
  REQUIRE((*engine)->add_template("scale", Backend::kCpu, kScale));
  return *std::move(engine);
}

KernelSpec scale(int64_t n) {
  return KernelSpec("scale", host_cpu_target()).set("N", n);
}

/// True, and a line is printed, where there is no compiler for the CPU.
bool skipped(Engine& engine) {
  if (!engine.compiler(Backend::kCpu).identity().empty()) return false;
  std::cout << "[SKIP] " << engine.compiler(Backend::kCpu).unavailable_reason() << "\n";
  return true;
}

}  // namespace

TEST_CASE("a kernel is compiled once, runs, and comes from disk in the next engine") {
  const test::TempDir dir;
  const auto engine = make_engine(dir.path());
  if (skipped(*engine)) return;
  const auto kernel = engine->kernel(scale(3));
  REQUIRE_MESSAGE(kernel, kernel.error().to_string());

  float x[5] = {1, 2, 3, 4, 5};
  const auto stream = open_cpu_device(1)->create_stream();
  REQUIRE(stream);
  REQUIRE((*kernel)->launch(**stream, {{8, 1, 1}}, &x[0], 5));
  CHECK(x[4] == 15);

  CHECK(*engine->kernel(scale(3)) == *kernel);
  CHECK(engine->stats().compiled == 1);
  CHECK(engine->stats().memory_hits == 1);

  const auto next = make_engine(dir.path());
  REQUIRE(next->kernel(scale(3)));
  CHECK(next->stats().compiled == 0);
  CHECK(next->stats().disk_hits == 1);
}

TEST_CASE("a kernel in a cache directory that no code may be run from is loaded and runs") {
  const test::TempDir dir;
  const auto engine = make_engine(dir.path());
  if (skipped(*engine)) return;
  REQUIRE(engine->kernel(scale(3)));
  // On a thread of its own, so that the process keeps its view of the file system.
  std::thread([&] {
    const char* const path = dir.path().c_str();
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
        mount(path, path, nullptr, MS_BIND, nullptr) != 0 ||
        mount(nullptr, path, nullptr, MS_REMOUNT | MS_BIND | MS_NOEXEC, nullptr) != 0) {
      std::cout << "[SKIP] a noexec directory: mounting needs root\n";
      return;
    }
    const auto next = make_engine(dir.path());
    const auto kernel = next->kernel(scale(3));
    float x = 2;
    const auto stream = open_cpu_device(1)->create_stream();
    CHECK(kernel);
    CHECK((*kernel)->launch(**stream, {}, &x, 1));
    CHECK(x == 6);
    CHECK(next->stats().disk_hits == 1);
  }).join();
}

TEST_CASE("a kernel outlives its engine") {
  auto engine = make_engine({});
  if (skipped(*engine)) return;
  auto kernel = engine->kernel(scale(2));
  REQUIRE(kernel);
  engine.reset();
  float x = 4;
  const auto stream = open_cpu_device(1)->create_stream();
  REQUIRE((*kernel)->launch(**stream, {}, &x, 1));
  CHECK(x == 8);
}

TEST_CASE("a kernel in use goes on working while the cache evicts it") {
  const test::TempDir dir;
  Options options;
  options.cache_dir = dir.path();
  options.cache_max_bytes = 100'000;
  const auto create = [&] {
    auto engine = Engine::create(options);
    REQUIRE(engine);
    REQUIRE((*engine)->add_template("scale", Backend::kCpu, kScale));
    return *std::move(engine);
  };
  const auto engine = create();
  if (skipped(*engine)) return;
  const auto kernel = engine->kernel(scale(3));
  REQUIRE(kernel);
  const std::string digest = engine->key(scale(3))->digest.hex();
  // Another process fills the cache.
  const auto other = create();
  for (int n = 0; !engine->store().show(digest)->empty(); ++n) {
    REQUIRE(n < 100);
    cache::KeyBuilder key;
    key.field("filler", n);
    REQUIRE(other->store().put(std::move(key).finish(), {"test", std::string(20'000, 'x'), ""}));
  }
  float x[2] = {1, 2};
  const auto stream = open_cpu_device(1)->create_stream();
  REQUIRE((*kernel)->launch(**stream, {{8, 1, 1}}, &x[0], 2));
  CHECK(x[1] == 6);
  CHECK(*engine->kernel(scale(3)) == *kernel);
  CHECK(engine->stats().compiled == 1);
  REQUIRE(other->kernel(scale(3)));
  CHECK(other->stats().compiled == 1);
}

TEST_CASE("a launch with wrong arguments is refused and runs nothing") {
  const auto engine = make_engine({});
  if (skipped(*engine)) return;
  const auto kernel = engine->kernel(scale(3));
  REQUIRE(kernel);
  const auto stream = open_cpu_device(1)->create_stream();
  float x = 1;
  const auto refused = [&](const Result<void>& result, const char* why) {
    REQUIRE_FALSE(result);
    CHECK(result.error().kind == ErrorKind::kBadInput);
    CHECK(result.error().message.find(why) != std::string::npos);
  };
  refused((*kernel)->launch(**stream, {}, &x), "1 arguments given, 2 expected");
  refused((*kernel)->launch(**stream, {}, &x, 1, 1), "3 arguments given");
  refused((*kernel)->launch(**stream, {}, &x, int64_t{1}), "argument 1 ('n') has 8 bytes");
  refused((*kernel)->launch(**stream, {{1, 1, 1}, {0, 1, 1}}, &x, 1), "block of 0 threads");
  CHECK(x == 1);
  CHECK((*kernel)->launch(**stream, {{0, 1, 1}}, &x, 1));
  CHECK(x == 1);
}

TEST_CASE("threads that ask for the same kernels compile each once") {
  const test::TempDir dir;
  const auto engine = make_engine(dir.path());
  if (skipped(*engine)) return;
  constexpr int kThreads = 8, kKernels = 3;
  std::atomic<int> found = 0;
  std::barrier start(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        for (int n = 1; n <= kKernels; ++n) found += engine->kernel(scale(n)).has_value();
      });
    }
  }
  CHECK(found == kThreads * kKernels);
  CHECK(engine->stats().compiled == kKernels);
}

TEST_CASE("warming reports each spec in order, and a second time finds all on disk") {
  const test::TempDir dir;
  const std::vector<KernelSpec> specs = {scale(1), scale(2), scale(5000), scale(3)};
  const auto engine = make_engine(dir.path());
  if (skipped(*engine)) return;
  size_t calls = 0;
  const auto reports = engine->warm(specs, [&](const BuildReport&) { ++calls; });
  REQUIRE(reports.size() == specs.size());
  CHECK(calls == specs.size());
  for (size_t i = 0; i < specs.size(); ++i) CHECK(reports[i].spec == specs[i]);
  CHECK(*reports[0].outcome == BuildSource::kCompiled);
  CHECK(reports[0].artifact_bytes > 0);
  REQUIRE_FALSE(reports[2].outcome);
  CHECK(reports[2].outcome.error().kind == ErrorKind::kBadSpec);

  const auto again = make_engine(dir.path())->warm(specs);
  CHECK(*again[0].outcome == BuildSource::kUserCache);
  CHECK(*again[3].outcome == BuildSource::kUserCache);
  CHECK(engine->warm({}).empty());
}

TEST_CASE("warmed kernels are not compiled again where nothing is kept on disk") {
  const auto engine = make_engine({});
  if (skipped(*engine)) return;
  REQUIRE(engine->warm(std::vector{scale(7)}).front().outcome);
  REQUIRE(engine->kernel(scale(7)));
  CHECK(engine->stats().compiled == 1);
}

TEST_CASE("kernels that are warmed and loaded at once are compiled once, where nothing is kept") {
  const auto engine = make_engine({});
  if (skipped(*engine)) return;
  constexpr int kKernels = 3;
  std::vector<KernelSpec> specs;
  for (int n = 1; n <= kKernels; ++n) specs.push_back(scale(n));
  std::barrier start(3);
  std::atomic<int> found = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        for (int round = 0; round < 50; ++round) {
          for (const BuildReport& report : engine->warm(specs)) found += report.outcome.has_value();
        }
      });
    }
    start.arrive_and_wait();
    for (const KernelSpec& spec : specs) found += engine->kernel(spec).has_value();
  }
  CHECK(found == kKernels * 101);
  CHECK(engine->stats().compiled == kKernels);
}

TEST_CASE("a template that does not compile gives the compiler's log, and may be mended") {
  const auto engine = make_engine({});
  if (skipped(*engine)) return;
  REQUIRE(engine->add_template("bad", Backend::kCpu,
                               "//! entry bad\nextern \"C\" void bad(Block) { undeclared(); }\n"));
  const KernelSpec bad("bad", host_cpu_target());
  const auto failed = engine->kernel(bad);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().kind == ErrorKind::kCompileFailed);
  CHECK(failed.error().detail.find("undeclared") != std::string::npos);
  CHECK(failed.error().detail.find("bad.cpp:2") != std::string::npos);
  REQUIRE(engine->add_template("bad", Backend::kCpu,
                               "//! entry bad\nextern \"C\" void bad(Block) {}\n"));
  CHECK(engine->kernel(bad));
}

TEST_CASE("an illegal option is refused") {
  Options options;
  options.cache_max_bytes = -1;
  CHECK_FALSE(Engine::create(options));
}
