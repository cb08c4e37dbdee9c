// What goes wrong around a cache, seen by who wants a kernel: there is always one, it is the right
// one, and its launch computes what it should. With fake compilers where only counters matter.
#include <doctest/doctest.h>
#include <grp.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <thread>

#include "cache/layers.h"
#include "jit/builder.h"
#include "jit/engine.h"
#include "jit/single_flight.h"
#include "tests/cache/fault_table.h"
#include "tests/cache/fault_vfs.h"
#include "tests/jit/cuda_support.h"
#include "tests/jit/fake_compiler.h"
#include "tests/temp_dir.h"

using namespace laya;
using namespace laya::jit;
using cache::test::Duration;
using cache::test::fault_row;
using cache::test::FaultKind;
using cache::test::FaultRow;
using cache::test::FaultVfs;

namespace {

constexpr const char* kTemplate =
    "//! entry  twice\n//! param N int 1..64\n//! arg a ptr\n#include \"own.cuh\"\nint n = N;\n";

/// A process with fake compilers and a real store.
struct FakeProcess {
  explicit FakeProcess(const std::filesystem::path& directory, JitMode mode = JitMode::kAuto,
                       std::string header = "int own;", std::string text = kTemplate) {
    cache::StoreOptions store;
    store.directory = directory;
    store.busy_timeout = std::chrono::milliseconds(2);
    auto fake = std::make_unique<test::FakeCompiler>(Backend::kCuda);
    compiler = fake.get();
    auto library = TemplateLibrary::create({}, {});
    REQUIRE(library);
    builder = std::make_unique<Builder>(
        *std::move(library), cache::Store::open(store), cache::Layers({}, {}), std::move(fake),
        std::make_unique<test::FakeCompiler>(Backend::kCpu), Builder::Policy{mode, false}, LogFn{});
    builder->add_header("own.cuh", Backend::kCuda, std::move(header));
    REQUIRE(builder->add_template("twice", Backend::kCuda, std::move(text)));
  }

  test::FakeCompiler* compiler = nullptr;
  std::unique_ptr<Builder> builder;
};

KernelSpec twice(int64_t n = 8, const char* target = "sm_80") {
  return KernelSpec("twice", {Backend::kCuda, target}).set("N", n);
}

/// The exit status of a child that runs `body`; a child that hangs is ended by a signal.
int in_child(const std::function<int()>& body) {
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

constexpr const char* kScale =
    "//! entry  scale\n//! param N int 1..1000\n//! arg x ptr\n//! arg n i32\n"
    "extern \"C\" void scale(float* x, int n, Block block) {\n"
    "  const int i = block.x;\n  if (i < n) x[i] *= N;\n}\n";

KernelSpec scale() {
  return KernelSpec("scale", host_cpu_target()).set("N", 3);
}

std::shared_ptr<Engine> make_engine(const std::filesystem::path& directory) {
  Options options;
  options.cache_dir = directory;
  auto engine = Engine::create(options);
  REQUIRE(engine);
  REQUIRE((*engine)->add_template("scale", Backend::kCpu, kScale));
  return *std::move(engine);
}

bool skipped(Engine& engine) {
  if (!engine.compiler(Backend::kCpu).identity().empty()) return false;
  std::cout << "[SKIP] " << engine.compiler(Backend::kCpu).unavailable_reason() << "\n";
  return true;
}

/// Gets the kernel, runs it and counts into `row`.
void launch(Engine& engine, FaultRow& row) {
  row.failed_launches = std::max<int64_t>(row.failed_launches, 0);
  const auto kernel = engine.kernel(scale());
  const auto stream = open_cpu_device(1)->create_stream();
  std::array<float, 5> x = {1, 2, 3, 4, 5};
  float* const data = x.data();
  if (!kernel || !stream || !(*kernel)->launch(**stream, {{8, 1, 1}}, data, 5)) {
    ++row.failed_launches;
    return;
  }
  if (x != std::array<float, 5>{3, 6, 9, 12, 15}) ++row.wrong;
}

/// Builds a kernel that is stored and one that is not; returns how many were evicted for them.
int64_t build_two(const std::filesystem::path& directory, FaultRow& row) {
  FakeProcess process(directory);
  for (const int64_t n : {1, 2}) {
    const auto built = process.builder->build(twice(n));
    REQUIRE(built);
    const std::string expected = "N = " + std::to_string(n) + ";";
    row.wrong += built->artifact.object.find(expected) == std::string::npos;
  }
  return process.builder->store().stats().evicted;
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The database of a directory as it was, to be brought back again and again.
class Snapshot {
 public:
  explicit Snapshot(std::filesystem::path directory) : directory_(std::move(directory)) {
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      if (entry.path().extension() == ".sqlite") name_ = entry.path();
    }
    bytes_ = read_file(name_);
    REQUIRE(!bytes_.empty());
  }
  void restore() const {
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      std::filesystem::remove(entry.path());
    }
    std::ofstream(name_, std::ios::binary) << bytes_;
    using std::filesystem::perms;
    std::filesystem::permissions(name_, perms::owner_read | perms::owner_write);
  }

 private:
  std::filesystem::path directory_, name_;
  std::string bytes_;
};

struct Case {
  const char* group;
  FaultKind kind;
};

constexpr Case kCases[] = {{"H", FaultKind::kIoError},     {"H", FaultKind::kTornWrite},
                           {"I", FaultKind::kFull},        {"G", FaultKind::kShortRead},
                           {"G", FaultKind::kFlippedRead}, {"B", FaultKind::kLockBusy},
                           {"B", FaultKind::kLockError},   {"B", FaultKind::kProtocol}};

FaultRow& row_of(const char* what, const Case& test, Duration duration) {
  return fault_row(test.group,
                   std::string(what) + ", SQLite: " + to_string(test.kind) +
                       (duration == Duration::kOnce ? " at the Nth operation"
                                                    : " at every operation from the Nth on"));
}

}  // namespace

TEST_CASE("whatever operation of SQLite fails, an engine gets its kernel and the launch is right") {
  const test::TempDir dir;
  {
    const auto engine = make_engine(dir.path());
    if (skipped(*engine)) return;
    REQUIRE(engine->kernel(scale()));
  }
  const Snapshot snapshot(dir.path());
  FaultVfs vfs;
  for (const auto& [test, duration] : {std::pair{Case{"H", FaultKind::kIoError}, Duration::kOnce},
                                       {{"H", FaultKind::kIoError}, Duration::kForGood},
                                       {{"G", FaultKind::kShortRead}, Duration::kOnce},
                                       {{"G", FaultKind::kFlippedRead}, Duration::kOnce},
                                       {{"G", FaultKind::kFlippedRead}, Duration::kForGood},
                                       {{"B", FaultKind::kLockError}, Duration::kForGood},
                                       {{"B", FaultKind::kProtocol}, Duration::kForGood}}) {
    FaultRow& row = row_of("engine", test, duration);
    CAPTURE(row.injected);
    // Where a fault costs a compile, not every place has to be tried.
    const int step = duration == Duration::kOnce ? 1 : 5;
    for (int nth = 1;; nth += step) {
      CAPTURE(nth);
      snapshot.restore();
      vfs.arm(test.kind, nth, duration);
      launch(*make_engine(dir.path()), row);
      vfs.disarm();
      row.times += vfs.injected();
      const auto next = make_engine(dir.path());
      launch(*next, row);
      row.lost += next->stats().compiled;
      if (vfs.injected() == 0) break;
    }
    CHECK(row.times > 0);
    CHECK(row.wrong == 0);
    CHECK(row.failed_launches == 0);
    if (test.kind != FaultKind::kFlippedRead) CHECK(row.lost == 0);
  }
}

TEST_CASE("whatever operation of SQLite fails, a build has its result and the next one, too") {
  const test::TempDir dir;
  REQUIRE(FakeProcess(dir.path()).builder->build(twice(1)));
  const Snapshot snapshot(dir.path());
  FaultVfs vfs;
  for (const Case& test : kCases) {
    for (const Duration duration : {Duration::kOnce, Duration::kForGood}) {
      FaultRow& row = row_of("builder", test, duration);
      CAPTURE(row.injected);
      for (int nth = 1;; ++nth) {
        CAPTURE(nth);
        snapshot.restore();
        vfs.arm(test.kind, nth, duration);
        const int64_t evicted = build_two(dir.path(), row);
        vfs.disarm();
        row.times += vfs.injected();
        row.evicted += evicted;
        FakeProcess next(dir.path());
        const auto found = next.builder->build(twice(1));
        REQUIRE(found);
        row.lost += (found->source == BuildSource::kCompiled) - evicted;
        CHECK(next.builder->store().mode() == cache::StoreMode::kReadWrite);
        if (vfs.injected() == 0) break;
      }
      CHECK(row.times > 0);
      CHECK(row.wrong == 0);
      if (test.group != std::string("G")) CHECK(row.lost == 0);
    }
  }
}

TEST_CASE("a process with another history forms the same key") {
  const test::TempDir dir;
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
  const test::TempDir dir;
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
  const test::TempDir dir;
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
  const auto device = test::gpu();
  if (!device || !test::has_nvrtc()) return;
  const test::TempDir dir;
  const auto engine_of = [&] {
    Options options;
    options.cache_dir = dir.path();
    auto engine = Engine::create(options);
    REQUIRE(engine);
    REQUIRE((*engine)->add_template("saxpy", Backend::kCuda,
                                    "//! entry saxpy\n//! arg a f32\n//! arg x ptr\n"
                                    "//! arg y ptr\n//! arg n i32\n" +
                                        test::kSaxpy));
    return *std::move(engine);
  };
  const KernelSpec spec("saxpy", device->target());
  REQUIRE(engine_of()->kernel(spec));
  const auto first = engine_of();
  cache::Store& store = first->store();
  const auto entry = store.show(store.list()->front().digest)->front();
  // As if it came from a newer toolkit: a head that is right, for a GPU that is not.
  const std::string other = device->target().name.starts_with("sm_8") ? "sm_75" : "sm_80";
  const auto foreign = test::nvrtc().compile(test::request(test::kSaxpy, "saxpy", other));
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
  const test::TempDir dir;
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
  const test::TempDir dir;
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
  const test::TempDir dir;
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

TEST_CASE("a fork in the middle of a compile leaves both sides with a builder that works") {
  const test::TempDir dir;
  FakeProcess process(dir.path());
  int status = -1;
  bool forked = false;
  process.compiler->on_compile = [&] {
    if (std::exchange(forked, true)) return;
    status = in_child([&] {
      const auto built = process.builder->build(twice(2));
      return built && built->source == BuildSource::kCompiled ? 0 : 1;
    });
  };
  REQUIRE(process.builder->build(twice(1)));
  CHECK(status == 0);
  FakeProcess next(dir.path());
  CHECK(next.builder->build(twice(1))->source == BuildSource::kUserCache);
  CHECK(next.builder->build(twice(2))->source == BuildSource::kUserCache);
  fault_row("M", "fork in the middle of a compile").times += 1;
}

TEST_CASE("a child of fork builds what a thread of its parent was building, and does not wait") {
  using Table = SingleFlightTable<int, std::shared_ptr<int>, std::hash<int>>;
  Table table;
  std::promise<void> building, finish;
  std::thread thread([&] {
    (void)table.get(1, [&]() -> Result<std::shared_ptr<int>> {
      building.set_value();
      finish.get_future().wait();
      return std::make_shared<int>(1);
    });
  });
  building.get_future().wait();
  CHECK(in_child([&] {
          const auto build = []() -> Result<std::shared_ptr<int>> {
            return std::make_shared<int>(2);
          };
          return **table.get(1, build) == 2 && **table.get(1, build) == 2 ? 0 : 1;
        }) == 0);
  finish.set_value();
  thread.join();
  CHECK(**table.find(1) == 1);
  fault_row("M", "fork while another thread builds the kernel that the child wants").times += 1;
}
