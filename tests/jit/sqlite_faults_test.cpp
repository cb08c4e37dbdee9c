// Whatever operation of SQLite fails: who wants a kernel gets the right one, and the cache is sound
// afterwards.
#include <fstream>

#include "tests/cache/fault_vfs.h"
#include "tests/jit/faults_support.h"
#include "tests/temp_dir.h"

using namespace laya;
using namespace laya::jit;
using namespace laya::test;
using cache::test::Duration;
using cache::test::FaultKind;
using cache::test::FaultVfs;

namespace {

/// Builds a kernel that is stored and one that is not; returns how many were evicted for them.
int64_t build_two(const std::filesystem::path& directory, FaultRow& row) {
  FakeProcess process(directory);
  for (const int64_t n : {1, 2}) {
    const auto built = process.builder->build(twice(n));
    REQUIRE(built);
    const std::string expected = "N = " + std::to_string(n) + " };";
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
  const TempDir dir;
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
  const TempDir dir;
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
