// Where the cache directory is, and which directories are refused.
#include "cache/directory.h"

#include <sys/stat.h>

#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::TempDirectory;

mode_t mode_of(const std::filesystem::path& path) {
  struct stat info = {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

TEST_CASE("the directory is the first of the places that are set") {
  const DirectoryInputs all{"/l", "/x", "/h", "/p"};
  CHECK(resolve_directory(all) == "/l");
  CHECK(resolve_directory({std::nullopt, "/x", "/h", "/p"}) == "/x/laya");
  CHECK(resolve_directory({std::nullopt, std::nullopt, "/h", "/p"}) == "/h/.cache/laya");
  CHECK(resolve_directory({std::nullopt, std::nullopt, std::nullopt, "/p"}) == "/p/.cache/laya");
  CHECK(resolve_directory({}).empty());
}

TEST_CASE("empty means unset, and only absolute homes count") {
  CHECK(resolve_directory({"", "", "", "/p"}) == "/p/.cache/laya");
  CHECK(resolve_directory({std::nullopt, "x", "h", "/p"}) == "/p/.cache/laya");
  CHECK(resolve_directory({std::nullopt, "x", "h", "p"}).empty());
  CHECK(resolve_directory({"relative is a choice", "/x", "/h", "/p"}) == "relative is a choice");
  test::fault_row("A", "HOME and others unset, empty or relative").times += 4;
}

TEST_CASE("a directory is made with its parents, private to the user") {
  const TempDirectory temp("a b'ü日本?#%/x/");
  REQUIRE(prepare_directory(temp.path()));
  CHECK(mode_of(temp.path()) == 0700);
  CHECK(mode_of(temp.path().parent_path().parent_path()) == 0700);
  CHECK(prepare_directory(temp.path()));
}

TEST_CASE("a directory that others can write to is refused, and left as it is") {
  for (const mode_t mode : {0777, 0770, 01777, 0702}) {
    const TempDirectory temp;
    REQUIRE(::chmod(temp.path().c_str(), mode) == 0);
    const auto prepared = prepare_directory(temp.path());
    REQUIRE_FALSE(prepared);
    CHECK(prepared.error().kind == ErrorKind::kStoreError);
    CHECK(prepared.error().message.find(temp.path().string()) != std::string::npos);
    CHECK(prepared.error().message.find("LAYA_CACHE_DIR") != std::string::npos);
    CHECK(mode_of(temp.path()) == mode);
  }
  test::fault_row("J", "directory writable for group or others (modes 0777, 0770, 01777, 0702)")
      .times += 4;
}

TEST_CASE("a directory that others can only read is fine") {
  const TempDirectory temp;
  REQUIRE(::chmod(temp.path().c_str(), 0755) == 0);
  CHECK(prepare_directory(temp.path()));
}

TEST_CASE("a symbolic link counts as what it leads to") {
  const TempDirectory temp;
  const auto good = temp.path() / "good", bad = temp.path() / "bad";
  REQUIRE(::mkdir(good.c_str(), 0700) == 0);
  REQUIRE(::mkdir(bad.c_str(), 0700) == 0);
  REQUIRE(::chmod(bad.c_str(), 0777) == 0);
  std::filesystem::create_symlink(good, temp.path() / "to-good");
  std::filesystem::create_symlink(bad, temp.path() / "to-bad");
  std::filesystem::create_symlink(temp.path() / "nowhere", temp.path() / "to-nowhere");
  CHECK(prepare_directory(temp.path() / "to-good"));
  CHECK_FALSE(prepare_directory(temp.path() / "to-bad"));
  CHECK_FALSE(prepare_directory(temp.path() / "to-nowhere"));
}

TEST_CASE("a file in the way is named") {
  const TempDirectory temp;
  const auto file = temp.path() / "file";
  test::write_file(file, "x");
  CHECK_FALSE(prepare_directory(file));
  const auto below = prepare_directory(file / "laya");
  REQUIRE_FALSE(below);
  CHECK(below.error().message.find("Not a directory") != std::string::npos);
}

TEST_CASE("a directory of another user is refused") {
  if (::geteuid() != 0) {
    MESSAGE("[SKIP] only root can give a directory away");
    return;
  }
  const TempDirectory temp;
  REQUIRE(::chown(temp.path().c_str(), 12345, 12345) == 0);
  const auto prepared = prepare_directory(temp.path());
  REQUIRE_FALSE(prepared);
  CHECK(prepared.error().message.find("12345") != std::string::npos);
}

TEST_CASE("a parent that cannot be written to is an error with its reason") {
  const TempDirectory temp;
  REQUIRE(::chmod(temp.path().c_str(), 0555) == 0);
  const int status = test::in_child([&] {
    if (!test::become_ordinary_user()) return 2;
    const auto prepared = prepare_directory(temp.path() / "laya");
    return !prepared && prepared.error().message.find("Permission denied") != std::string::npos ? 0
                                                                                                : 1;
  });
  CHECK(status == 0);
}

}  // namespace
}  // namespace laya::cache
