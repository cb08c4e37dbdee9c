#include "jit/cpu/core_count.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace laya::jit {
namespace {

namespace fs = std::filesystem;

class Groups {
 public:
  Groups() {
    std::string path = (fs::temp_directory_path() / "laya-cgroup-XXXXXX").string();
    REQUIRE(mkdtemp(path.data()) != nullptr);
    root_ = path;
  }
  ~Groups() { fs::remove_all(root_); }

  void limit(const char* group, const char* text) const {
    fs::create_directories(root_ / group);
    std::ofstream(root_ / group / "cpu.max") << text;
  }
  int cores(const char* membership) const { return cgroup_core_limit(root_, membership); }

 private:
  fs::path root_;
};

}  // namespace

TEST_CASE("this process may use at least one core") {
  CHECK(available_cores() >= 1);
}

TEST_CASE("a control group's share of time is rounded up to cores") {
  const Groups groups;
  groups.limit("a", "250000 100000\n");
  CHECK(groups.cores("0::/a\n") == 3);
  groups.limit("b", "50000 100000\n");
  CHECK(groups.cores("12:cpu:/x\n0::/b\n") == 1);
}

TEST_CASE("the tightest group on the way to the root counts") {
  const Groups groups;
  groups.limit("a", "400000 100000\n");
  groups.limit("a/b", "max 100000\n");
  groups.limit("a/b/c", "800000 100000\n");
  CHECK(groups.cores("0::/a/b/c\n") == 4);
  CHECK(groups.cores("0::/a/b/c/not-visible\n") == 4);
  groups.limit("", "200000 100000\n");  // as in a container, whose root is its own group
  CHECK(groups.cores("0::/a/b/c\n") == 2);
  CHECK(groups.cores("0::/\n") == 2);
}

TEST_CASE("without a readable limit there is none") {
  const Groups groups;
  groups.limit("a", "max 100000\n");
  groups.limit("b", "nonsense");
  groups.limit("c", "0 0\n");
  for (const char* membership : {"0::/a\n", "0::/b\n", "0::/c\n", "0::/d\n", "3:cpu:/a\n", ""}) {
    CHECK(groups.cores(membership) == 0);
  }
}

}  // namespace laya::jit
