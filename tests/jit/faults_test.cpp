// What goes wrong around a cache, seen by who wants a kernel: there is always one, it is the right
// one, and its launch computes what it should.
#include <grp.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/jit/cuda_support.h"
#include "tests/jit/faults_support.h"
#include "tests/temp_dir.h"

using namespace laya;
using namespace laya::jit;
using namespace laya::test;

TEST_CASE("a process with another history forms the same key") {
  const TempDir dir;
  REQUIRE(FakeProcess(dir.path()).builder->build(twice()));
  const auto other_history = [&] {
    ::setenv("PATH", "/elsewhere", 1);
    ::setenv("HOME", "/nowhere", 1);
    ::setenv("LC_ALL", "de_DE.UTF-8", 1);
    ::setenv("TZ", "Asia/Tokyo", 1);
    ::setenv("OMP_NUM_THREADS", "3", 1);
    ::setenv("CPATH", "/usr/include", 1);
    ::umask(0);
    if (::chdir("/") != 0) return 1;
    FakeProcess process(dir.path(), JitMode::kAuto, "int other;");
    process.builder->add_header("unused.cuh", Backend::kCuda, "int unused;");
    if (!process.builder->build(twice(5)) || !process.builder->build(twice(8))) return 2;
    const int before = process.compiler->compiles;
    process.builder->add_header("own.cuh", Backend::kCuda, "int own;");
    const auto built = process.builder->build(twice());
    const bool is_hit = built && built->source == BuildSource::kUserCache;
    return is_hit && process.compiler->compiles == before ? 0 : 3;
  };
  CHECK(in_child(other_history) == 0);
  fault_row("E", "other folder, environment, umask, order of work").times += 1;
}

TEST_CASE("another key under the same digest is a miss, and its kernel is not taken") {
  const TempDir dir;
  FakeProcess process(dir.path());
  REQUIRE(process.builder->build(twice()));
  cache::Store& store = process.builder->store();
  const auto entry = store.show(store.list()->front().digest)->front();
  cache::KeyBuilder fields;
  for (const auto& field : entry.key) fields.field(field.tag, field.value);
  const cache::Key key = std::move(fields).finish();
  const auto record = store.find(key, "fake-1");
  REQUIRE(record);
  REQUIRE(store.put({key.digest, key.text + "more:1:x\n"},
                    {"fake-1", "the wrong kernel", record->metadata}));
  const auto built = process.builder->build(twice());
  REQUIRE(built);
  CHECK(built->source == BuildSource::kCompiled);
  CHECK(built->artifact.object != "the wrong kernel");
  fault_row("F", "kernel of another key under the wanted digest").times += 1;
}

TEST_CASE("stored code that does not load is compiled once more, and then it is there to stay") {
  const TempDir dir;
  {
    const auto engine = make_engine(dir.path());
    if (skipped(*engine)) return;
    REQUIRE(engine->kernel(scale()));
  }
  FaultRow& row = fault_row("Q", "stored code that the loader refuses");
  for (const std::string& object :
       {std::string(), std::string("no object"), std::string(5000, '\x7f')}) {
    {
      const auto engine = make_engine(dir.path());
      cache::Store& store = engine->store();
      const auto entry = store.show(store.list()->front().digest)->front();
      cache::KeyBuilder fields;
      for (const auto& field : entry.key) fields.field(field.tag, field.value);
      REQUIRE(store.put(std::move(fields).finish(), {entry.producer, object, entry.metadata}));
    }
    ++row.times;
    const auto engine = make_engine(dir.path());
    launch(*engine, row);
    CHECK(engine->stats().compiled == 1);
    const auto next = make_engine(dir.path());
    launch(*next, row);
    CHECK(next->stats().compiled == 0);
  }
  CHECK(row.wrong == 0);
  CHECK(row.failed_launches == 0);
}

TEST_CASE("a stored cubin that the driver refuses is compiled anew for the GPU that is there") {
  const auto device = gpu();
  if (!device || !has_nvrtc()) return;
  const TempDir dir;
  const auto engine_of = [&] {
    Options options;
    options.cache_dir = dir.path();
    auto engine = Engine::create(options);
    REQUIRE(engine);
    REQUIRE((*engine)->add_template("saxpy", Backend::kCuda,
                                    "//! entry saxpy\n//! arg a f32\n//! arg x ptr\n"
                                    "//! arg y ptr\n//! arg n i32\n" +
                                        kSaxpy));
    return *std::move(engine);
  };
  const KernelSpec spec("saxpy", device->target());
  REQUIRE(engine_of()->kernel(spec));
  const auto first = engine_of();
  cache::Store& store = first->store();
  const auto entry = store.show(store.list()->front().digest)->front();
  // As if it came from a newer toolkit: a head that is right, for a GPU that is not.
  const std::string other = device->target().name.starts_with("sm_8") ? "sm_75" : "sm_80";
  const auto foreign = nvrtc().compile(request(kSaxpy, "saxpy", other));
  REQUIRE(foreign);
  REQUIRE(store.put(*first->key(spec), {entry.producer, foreign->object, entry.metadata}));
  FaultRow& row = fault_row("Q", "stored cubin that the driver refuses");
  ++row.times;
  const auto engine = engine_of();
  row.failed_launches = std::max<int64_t>(row.failed_launches, 0) + !engine->kernel(spec);
  CHECK(engine->stats().compiled == 1);
  CHECK(row.failed_launches == 0);
  const auto next = engine_of();
  CHECK(next->kernel(spec));
  CHECK(next->stats().compiled == 0);
}

TEST_CASE("a failed compile stores nothing, gives the whole log, and the next call tries again") {
  const TempDir dir;
  FakeProcess process(dir.path());
  process.compiler->should_fail = true;
  for (int i = 0; i < 3; ++i) {
    const auto failed = process.builder->build(twice());
    REQUIRE_FALSE(failed);
    CHECK(failed.error().detail == "line 1: oh no");
  }
  CHECK(process.compiler->compiles == 3);
  CHECK(process.builder->store().list()->empty());
  FakeProcess next(dir.path());
  CHECK(next.builder->build(twice())->source == BuildSource::kCompiled);
  fault_row("N", "compile that fails").times += 3;
}

TEST_CASE("where a warm cache was expected, the field that differs is named") {
  const TempDir dir;
  REQUIRE(FakeProcess(dir.path()).builder->build(twice()));
  const auto message_of = [](FakeProcess process, const KernelSpec& spec) {
    const auto missing = process.builder->build(spec);
    REQUIRE_FALSE(missing);
    CHECK(missing.error().kind == ErrorKind::kNotCached);
    CHECK(process.compiler->compiles == 0);
    fault_row("O", "cache that is not as warm as was thought").times += 1;
    return missing.error().message;
  };
  const auto names = [](const std::string& message, const char* field) {
    CAPTURE(message);
    CHECK(message.find(field) != std::string::npos);
  };
  names(message_of(FakeProcess(dir.path(), JitMode::kNever), twice(9)), "kernel");
  names(message_of(FakeProcess(dir.path(), JitMode::kNever), twice(8, "sm_90")), "target");
  names(message_of(FakeProcess(dir.path(), JitMode::kNever, "int mine;"), twice()), "own.cuh");
  names(message_of(FakeProcess(dir.path(), JitMode::kNever, "int own;",
                               std::string(kTemplate) + "int more;\n"),
                   twice()),
        "source");
}

TEST_CASE("a kernel for one processor is a miss for every other") {
  const TempDir dir;
  const auto spec = [](const char* target) {
    return KernelSpec("scale", {Backend::kCpu, target}).set("N", 3);
  };
  int compiled = 0;
  for (const char* target :
       {"x86_64:x86-64:+sse2", "x86_64:x86-64:+avx2,+sse2", "x86_64:znver4:+avx2,+sse2"}) {
    FakeProcess process(dir.path());
    REQUIRE(process.builder->add_template("scale", Backend::kCpu, kScale));
    const auto built = process.builder->build(spec(target));
    REQUIRE(built);
    compiled += built->source == BuildSource::kCompiled;
    fault_row("P", "kernel stored for another processor").times += 1;
  }
  CHECK(compiled == 3);
}

TEST_CASE("a user without a home, a name or a place to write gets kernels all the same") {
  const auto nobody = [] {
    for (const char* name : {"LAYA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) ::unsetenv(name);
    if (::geteuid() == 0 &&
        (::setgroups(0, nullptr) != 0 || ::setgid(54321) != 0 || ::setuid(54321) != 0)) {
      return 77;
    }
    const auto options = options_from_environment();
    if (!options) return 1;
    FakeProcess process(options->cache_dir);
    for (const int64_t n : {1, 2, 1}) {
      if (!process.builder->build(twice(n))) return 2;
    }
    return 0;
  };
  const int status = in_child(nobody);
  if (status == 77) {
    MESSAGE("[SKIP] root cannot be given up here");
    return;
  }
  CHECK(status == 0);
  fault_row("A", "random user without a home, variables unset").times += 1;
}
