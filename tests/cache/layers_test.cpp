// Read-only caches: searched in order, never changed, left out with one warning where they cannot
// be trusted.
#include "cache/layers.h"

#include <sys/stat.h>

#include <thread>

#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::key_of;
using test::Log;
using test::options_for;
using test::record_of;
using test::same;
using test::TempDirectory;

/// A directory with one record, closed.
void fill(const TempDirectory& temp, const char* name, uint32_t seed) {
  REQUIRE(Store::open(options_for(temp))->put(key_of(name), record_of(seed)));
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST_CASE("layers are searched in order, by key and producer") {
  const TempDirectory first, second;
  fill(first, "a", 1);
  fill(second, "a", 2);
  fill(second, "b", 3);
  Log log;
  Layers layers({first.path(), second.path()}, log.function());
  CHECK(same(*layers.find(key_of("a"), "maker-1"), record_of(1)));
  CHECK(same(*layers.find(key_of("b"), "maker-1"), record_of(3)));
  CHECK(same(*layers.find(key_of("b"), ""), record_of(3)));
  CHECK_FALSE(layers.find(key_of("b"), "maker-2"));
  CHECK_FALSE(layers.find(key_of("c"), ""));
  CHECK(log.lines().empty());
  const auto infos = layers.describe();
  REQUIRE(infos.size() == 2);
  CHECK(infos[1].entries == 2);
  CHECK(infos[1].problem.empty());
}

TEST_CASE("a database file is a layer as well as its directory") {
  const TempDirectory temp("a b'ü日本?#%");
  fill(temp, "a", 1);
  Layers layers({temp.database()}, {});
  CHECK(layers.find(key_of("a"), ""));
}

TEST_CASE("reading a layer leaves its directory as it was") {
  const TempDirectory temp;
  fill(temp, "a", 1);
  const auto files = files_in(temp.path());
  const auto bytes = test::read_file(temp.database());
  {
    Layers layers({temp.path()}, {});
    CHECK(layers.find(key_of("a"), ""));
    CHECK(files_in(temp.path()) == files);
  }
  CHECK(files_in(temp.path()) == files);
  CHECK(test::read_file(temp.database()) == bytes);
}

TEST_CASE("a layer in a read-only directory is read by another user") {
  const TempDirectory temp;
  fill(temp, "a", 1);
  ::chmod(temp.database().c_str(), 0444);
  ::chmod(temp.path().c_str(), 0555);
  const int status = test::in_child([&] {
    if (!test::become_ordinary_user()) return 2;
    Layers layers({temp.path()}, {});
    return layers.find(key_of("a"), "") ? 0 : 1;
  });
  ::chmod(temp.path().c_str(), 0755);
  CHECK(status == 0);
}

TEST_CASE("a layer that is missing, foreign or damaged is left out with one warning") {
  const TempDirectory good, empty, foreign, damaged;
  fill(good, "a", 1);
  {
    test::RawDatabase(foreign.database()).execute("CREATE TABLE t(x)");
  }
  ::chmod(foreign.database().c_str(), 0600);
  test::write_file(damaged.database(), std::string(50'000, 'x'));
  ::chmod(damaged.database().c_str(), 0600);
  for (const auto& bad : {empty.path(), empty.path() / "gone", foreign.path(), damaged.path()}) {
    CAPTURE(bad);
    Log log;
    Layers layers({bad, good.path()}, log.function());
    for (int i = 0; i < 3; ++i) {
      CHECK(same(*layers.find(key_of("a"), "maker-1"), record_of(1)));
    }
    CHECK(log.lines().size() == 1);
    CHECK(log.count(bad.string()) == 1);
    CHECK_FALSE(layers.describe()[0].problem.empty());
  }
}

TEST_CASE("a damaged record of a layer is never handed out") {
  const TempDirectory temp;
  fill(temp, "a", 1);
  const std::string file = test::read_file(temp.database());
  const size_t at = file.find(record_of(1).artifact.substr(1000, 64));
  REQUIRE(at != std::string::npos);
  test::patch_file(temp.database(), at, "?");
  Log log;
  Layers layers({temp.path()}, log.function());
  CHECK_FALSE(layers.find(key_of("a"), "maker-1"));
  CHECK_FALSE(layers.find(key_of("a"), "maker-1"));
  CHECK(log.count("is damaged") == 1);
}

TEST_CASE("a layer that others could have written is left out") {
  const TempDirectory temp;
  fill(temp, "a", 1);
  const auto usable = [&](const std::filesystem::path& path, mode_t mode) {
    struct stat info = {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    ::chmod(path.c_str(), mode);
    Layers layers({temp.path()}, {});
    const bool found = layers.find(key_of("a"), "").has_value();
    ::chmod(path.c_str(), info.st_mode & 07777);
    return found;
  };
  CHECK(usable(temp.path(), 0755));
  CHECK_FALSE(usable(temp.path(), 0775));
  CHECK_FALSE(usable(temp.path(), 0777));
  CHECK(usable(temp.path(), 01777));  // As /tmp: what is there is its owner's.
  CHECK(usable(temp.database(), 0644));
  CHECK_FALSE(usable(temp.database(), 0664));
  CHECK_FALSE(usable(temp.database(), 0602));
  if (::geteuid() != 0) return;
  REQUIRE(::chown(temp.database().c_str(), 12345, 12345) == 0);
  CHECK_FALSE(usable(temp.path(), 0755));
}

TEST_CASE("a symbolic link to a layer is followed") {
  const TempDirectory temp, links;
  fill(temp, "a", 1);
  std::filesystem::create_symlink(temp.path(), links.path() / "layer");
  Layers layers({links.path() / "layer"}, {});
  CHECK(layers.find(key_of("a"), ""));
}

TEST_CASE("threads and forked children read the same layers") {
  const TempDirectory temp;
  for (uint32_t i = 0; i < 20; ++i) fill(temp, std::to_string(i).c_str(), i);
  Layers layers({temp.path()}, {});
  const auto read_all = [&] {
    int found = 0;
    for (uint32_t i = 0; i < 20; ++i) {
      const auto record = layers.find(key_of(std::to_string(i)), "maker-1");
      found += record && same(*record, record_of(i));
    }
    return found;
  };
  CHECK(read_all() == 20);
  CHECK(test::in_child([&] { return read_all() == 20 ? 0 : 1; }) == 0);
  std::atomic<int> found = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([&] { found += read_all(); });
  }
  CHECK(found == 80);
}

}  // namespace
}  // namespace laya::cache
