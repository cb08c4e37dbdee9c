#include "jit/builder.h"

#include <doctest/doctest.h>

#include <optional>
#include <thread>
#include <utility>

#include "tests/jit/fake_compiler.h"
#include "tests/temp_dir.h"

using namespace laya;
using namespace laya::jit;

namespace {

constexpr const char* kTemplate =
    "//! entry  twice\n//! param N int 1..64\n//! arg a ptr\n"
    "#include \"own.cuh\"\nint n = N;\n";

struct Settings {
  std::vector<std::filesystem::path> layers;
  bool copy_layer_hits = false;
};

/// A builder over fake compilers and a real store, as a process would make one.
struct Process {
  explicit Process(const std::filesystem::path& dir, std::string identity = "fake-1",
                   JitMode mode = JitMode::kAuto, std::string header = "int own;",
                   const Settings& settings = {}) {
    cache::StoreOptions store;
    store.directory = dir;
    auto cuda = std::make_unique<test::FakeCompiler>(Backend::kCuda, std::move(identity));
    compiler = cuda.get();
    auto library = TemplateLibrary::create({}, {});
    REQUIRE(library);
    builder = std::make_unique<Builder>(*std::move(library), cache::Store::open(store),
                                        cache::Layers(settings.layers, {}), std::move(cuda),
                                        std::make_unique<test::FakeCompiler>(Backend::kCpu),
                                        Builder::Policy{mode, settings.copy_layer_hits}, LogFn{});
    REQUIRE(builder->add_template("twice", Backend::kCuda, kTemplate));
    builder->add_header("own.cuh", Backend::kCuda, std::move(header));
  }

  EngineStats stats() const {
    EngineStats stats;
    builder->count_into(stats);
    return stats;
  }

  std::unique_ptr<Builder> builder;
  test::FakeCompiler* compiler = nullptr;
};

KernelSpec twice(int64_t n = 8, const char* target = "sm_80") {
  return KernelSpec("twice", {Backend::kCuda, target}).set("N", n);
}

}  // namespace

TEST_CASE("a second process takes from disk what the first compiled") {
  const test::TempDir dir;
  Process first(dir.path());
  const auto built = first.builder->build(twice());
  REQUIRE(built);
  CHECK(built->source == BuildSource::kCompiled);

  Process second(dir.path());
  const auto found = second.builder->build(twice());
  REQUIRE(found);
  CHECK(found->source == BuildSource::kUserCache);
  CHECK(found->artifact.object == built->artifact.object);
  CHECK(found->artifact.attributes.registers == 40);
  CHECK(found->artifact.attributes.max_threads == 256);
  CHECK(found->entry == "twice");
  CHECK(found->signature.size() == 1);
  CHECK(second.compiler->compiles == 0);
  CHECK(second.stats().disk_hits == 1);
  CHECK(second.stats().compiled == 0);
}

TEST_CASE("another parameter, target or header text is another kernel") {
  const test::TempDir dir;
  REQUIRE(Process(dir.path()).builder->build(twice()));
  Process other(dir.path());
  REQUIRE(other.builder->build(twice(9)));
  REQUIRE(other.builder->build(twice(8, "sm_80a")));
  CHECK(other.compiler->compiles == 2);
  Process edited(dir.path(), "fake-1", JitMode::kAuto, "int own = 2;");
  REQUIRE(edited.builder->build(twice()));
  CHECK(edited.compiler->compiles == 1);
}

TEST_CASE("an upgraded compiler compiles again, and the older kernel stays for the older one") {
  const test::TempDir dir;
  REQUIRE(Process(dir.path(), "fake-1").builder->build(twice()));
  Process upgraded(dir.path(), "fake-2");
  CHECK(upgraded.builder->build(twice())->source == BuildSource::kCompiled);
  CHECK(Process(dir.path(), "fake-1").builder->build(twice())->source == BuildSource::kUserCache);
  CHECK(Process(dir.path(), "fake-2").builder->build(twice())->source == BuildSource::kUserCache);
}

TEST_CASE("without a compiler a stored kernel is used and a missing one says what to install") {
  const test::TempDir dir;
  REQUIRE(Process(dir.path()).builder->build(twice()));
  Process bare(dir.path(), "");
  CHECK(bare.builder->build(twice())->source == BuildSource::kUserCache);
  const auto missing = bare.builder->build(twice(9));
  REQUIRE_FALSE(missing);
  CHECK(missing.error().kind == ErrorKind::kUnavailable);
  CHECK(missing.error().message.find("not installed") != std::string::npos);
  CHECK(bare.stats().failed == 1);
}

TEST_CASE("with compiling switched off a miss names the field that differs") {
  const test::TempDir dir;
  REQUIRE(Process(dir.path()).builder->build(twice()));
  Process never(dir.path(), "fake-2", JitMode::kNever);
  CHECK(never.builder->build(twice())->source == BuildSource::kUserCache);
  const auto missing = never.builder->build(twice(8, "sm_90a"));
  REQUIRE_FALSE(missing);
  CHECK(missing.error().kind == ErrorKind::kNotCached);
  CHECK(missing.error().message.find("target: 'sm_80' is stored, 'sm_90a' is wanted") !=
        std::string::npos);
  CHECK(never.compiler->compiles == 0);
}

TEST_CASE("a failed compile carries the log, is counted, and is tried again") {
  const test::TempDir dir;
  Process process(dir.path());
  process.compiler->should_fail = true;
  const auto failed = process.builder->build(twice());
  REQUIRE_FALSE(failed);
  CHECK(failed.error().kind == ErrorKind::kCompileFailed);
  CHECK(failed.error().detail == "line 1: oh no");
  CHECK(failed.error().message.find("twice{N=8}@sm_80") != std::string::npos);
  process.compiler->should_fail = false;
  CHECK(process.builder->build(twice()));
  CHECK(process.compiler->compiles == 2);
  CHECK(process.stats().failed == 1);
  CHECK(process.stats().compiled == 1);
}

TEST_CASE("a wrong spec compiles nothing") {
  const test::TempDir dir;
  Process process(dir.path());
  CHECK(process.builder->build(twice(65)).error().kind == ErrorKind::kBadSpec);
  CHECK(process.builder->build(KernelSpec("no_such", {Backend::kCuda, "sm_80"})).error().kind ==
        ErrorKind::kBadSpec);
  CHECK(process.compiler->compiles == 0);
}

TEST_CASE("a kernel is taken from a layer, and is copied only if that is asked for") {
  const test::TempDir layer, user;
  REQUIRE(Process(layer.path()).builder->build(twice()));
  const auto with_layer = [&](bool copy) {
    Process process(user.path(), "fake-1", JitMode::kAuto, "int own;", {{layer.path()}, copy});
    const auto found = process.builder->build(twice());
    REQUIRE(found);
    CHECK(process.compiler->compiles == 0);
    return std::pair(found->source, process.stats().layer_hits);
  };
  CHECK(with_layer(false) == std::pair(BuildSource::kLayer, int64_t{1}));
  CHECK(with_layer(false) == std::pair(BuildSource::kLayer, int64_t{1}));
  CHECK(with_layer(true) == std::pair(BuildSource::kLayer, int64_t{1}));
  CHECK(with_layer(false) == std::pair(BuildSource::kUserCache, int64_t{0}));
}

TEST_CASE("a layer made by another compiler serves those who have none or may not compile") {
  const test::TempDir layer, user;
  REQUIRE(Process(layer.path(), "fake-9").builder->build(twice()));
  const Settings settings{{layer.path()}, false};
  const auto source = [&](const char* identity, JitMode mode) {
    Process process(user.path(), identity, mode, "int own;", settings);
    const auto built = process.builder->build(twice());
    return built ? built->source : BuildSource::kMemory;
  };
  CHECK(source("", JitMode::kAuto) == BuildSource::kLayer);
  CHECK(source("fake-1", JitMode::kNever) == BuildSource::kLayer);
  CHECK(source("fake-1", JitMode::kAuto) == BuildSource::kCompiled);
}

TEST_CASE("of two processes that miss the same kernel one compiles and the other waits") {
  const test::TempDir dir;
  Process first(dir.path()), second(dir.path());
  std::optional<Result<BuiltArtifact>> waited;
  std::jthread other;
  first.compiler->on_compile = [&] {
    other = std::jthread([&] { waited = second.builder->build(twice()); });
    // Until the other process has missed; whether it then waits or comes late, it may not compile.
    while (second.builder->store().stats().misses == 0) std::this_thread::yield();
  };
  REQUIRE(first.builder->build(twice()));
  other.join();
  REQUIRE(*waited);
  CHECK((*waited)->source == BuildSource::kUserCache);
  CHECK(second.compiler->compiles == 0);
  CHECK(second.stats().disk_hits == 1);
  CHECK(second.builder->store().stats().waits == 1);
}

TEST_CASE("a process compiles itself what another failed to compile") {
  const test::TempDir dir;
  Process first(dir.path()), second(dir.path());
  first.compiler->should_fail = true;
  std::optional<Result<BuiltArtifact>> waited;
  std::jthread other;
  first.compiler->on_compile = [&] {
    other = std::jthread([&] { waited = second.builder->build(twice()); });
    while (second.builder->store().stats().misses == 0) std::this_thread::yield();
  };
  CHECK_FALSE(first.builder->build(twice()));
  other.join();
  REQUIRE(*waited);
  CHECK((*waited)->source == BuildSource::kCompiled);
}

TEST_CASE("rebuilding compiles although the store has the kernel, and replaces it") {
  const test::TempDir dir;
  Process process(dir.path());
  REQUIRE(process.builder->build(twice()));
  CHECK(process.builder->rebuild(twice())->source == BuildSource::kCompiled);
  CHECK(process.compiler->compiles == 2);
  CHECK(process.builder->store().list()->size() == 1);
}

TEST_CASE("a stored kernel whose metadata makes no sense is dropped and compiled again") {
  const test::TempDir dir;
  Process process(dir.path());
  REQUIRE(process.builder->build(twice()));
  const auto entry = process.builder->store().list()->front();
  // The key is rebuilt from what the store shows, so that this test needs no access to the inside.
  cache::KeyBuilder key;
  const auto shown = process.builder->store().show(entry.digest);
  REQUIRE(shown);
  for (const auto& field : shown->front().key) key.field(field.tag, field.value);
  REQUIRE(process.builder->store().put(std::move(key).finish(), {"fake-1", "object", "{}"}));
  CHECK(process.builder->build(twice())->source == BuildSource::kCompiled);
  CHECK(Process(dir.path()).builder->build(twice())->source == BuildSource::kUserCache);
}

TEST_CASE("without a usable directory kernels are compiled and nothing is an error") {
  Process process("/dev/null/nowhere");
  CHECK(process.builder->build(twice())->source == BuildSource::kCompiled);
  CHECK(process.builder->build(twice())->source == BuildSource::kCompiled);
}
