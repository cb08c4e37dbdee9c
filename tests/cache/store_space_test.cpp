// A full disk, for real: a small tmpfs, mounted in a child where nobody else sees it.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>

#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::in_child;
using test::key_of;
using test::Log;
using test::options_for;
using test::record_of;
using test::same;
using test::TempDirectory;

constexpr int kNotPossible = 77;

/// Runs `body` in a child whose `directory` is a file system of `size`, such as "1m" or
/// "1m,nr_inodes=3".
template <class Body>
int on_small_disk(const std::filesystem::path& directory, const std::string& size, Body body) {
  return in_child([&] {
    const std::string options = "mode=0700,size=" + size;
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", directory.c_str(), "tmpfs", 0, options.c_str()) != 0) {
      return kNotPossible;
    }
    return body();
  });
}

void check_status(int status) {
  if (status == kNotPossible) {
    MESSAGE("[SKIP] no file system can be mounted here");
    return;
  }
  CHECK(status == 0);
}

TEST_CASE("a disk that fills up costs old records, not new ones") {
  const TempDirectory temp;
  check_status(on_small_disk(temp.path(), "40m", [&] {
    Log log;
    const auto store = Store::open(options_for(temp, &log));
    if (store->mode() != StoreMode::kReadWrite) return 1;
    for (uint32_t i = 0; i < 80; ++i) {
      const Key key = key_of("k" + std::to_string(i));
      if (!store->put(key, record_of(i, 1000000))) return 2;
      const auto found = store->find(key, "maker-1");
      if (!found || !same(*found, record_of(i, 1000000))) return 3;
    }
    const StoreStats stats = store->stats();
    if (stats.evicted < 50 || stats.damaged + stats.errors != 0) return 4;
    // It evicts when it has to, not with every put.
    if (stats.evicted > 70 || !log.lines().empty()) return 5;
    const auto damaged = store->verify(false);
    return damaged && damaged->empty() ? 0 : 6;
  }));
  test::fault_row("I", "disk that fills up (tmpfs of 40 MB, 80 MB stored)").times += 1;
}

TEST_CASE("a disk without any space keeps nothing, is counted, and loses nothing") {
  const TempDirectory temp;
  check_status(on_small_disk(temp.path(), "2m", [&] {
    Log log;
    const auto store = Store::open(options_for(temp, &log));
    if (!store->put(key_of("k"), record_of(1))) return 1;
    {
      std::ofstream filler(temp.path() / "filler", std::ios::binary);
      while (filler << std::string(4096, 'x') << std::flush) {
      }
    }
    for (uint32_t i = 0; i < 5; ++i) {
      if (store->put(key_of("large" + std::to_string(i)), record_of(i, 1000000))) return 2;
    }
    if (store->stats().errors < 5 || store->stats().damaged != 0) return 3;
    if (log.lines().size() > 2) return 4;
    std::filesystem::remove(temp.path() / "filler");
    return store->put(key_of("again"), record_of(2)) && store->find(key_of("again"), "") ? 0 : 5;
  }));
  test::fault_row("I", "no space left (tmpfs), 5 records refused").times += 5;
}

TEST_CASE("a disk without inodes left keeps nothing or works with what it has") {
  // The root, the lock, the database, its log and the log's index take five.
  for (int inodes = 1; inodes <= 6; ++inodes) {
    CAPTURE(inodes);
    const TempDirectory temp;
    check_status(on_small_disk(temp.path(), "8m,nr_inodes=" + std::to_string(inodes), [&] {
      const auto store = Store::open(options_for(temp));
      const bool stored = store->put(key_of("k"), record_of(1));
      const auto found = store->find(key_of("k"), "maker-1");
      if (found && !same(*found, record_of(1))) return 1;
      if (stored != found.has_value()) return 2;
      return stored || inodes < 5 ? 0 : 3;
    }));
    test::fault_row("I", "no inodes left (tmpfs)").times += 1;
  }
}

/// As long as it lives, SQLite cannot make a file longer, as where a disk quota is used up.
class UsedUpQuota {
 public:
  UsedUpQuota() {
    for (const char* name : {"write", "pwrite", "pwrite64"}) {
      const bool at_place = name[0] == 'p';
      const auto replacement = at_place ? reinterpret_cast<sqlite3_syscall_ptr>(write_at)
                                        : reinterpret_cast<sqlite3_syscall_ptr>(write_here);
      vfs_->xSetSystemCall(vfs_, name, replacement);
    }
  }
  UsedUpQuota(const UsedUpQuota&) = delete;
  UsedUpQuota& operator=(const UsedUpQuota&) = delete;
  ~UsedUpQuota() {
    for (const char* name : {"write", "pwrite", "pwrite64"}) {
      vfs_->xSetSystemCall(vfs_, name, nullptr);
    }
  }

 private:
  static ssize_t write_at(int fd, const void* bytes, size_t count, off_t offset) {
    struct stat info = {};
    if (::fstat(fd, &info) == 0 && offset + static_cast<off_t>(count) <= info.st_size) {
      return ::pwrite(fd, bytes, count, offset);
    }
    errno = EDQUOT;
    return -1;
  }
  static ssize_t write_here(int fd, const void* bytes, size_t count) {
    return write_at(fd, bytes, count, ::lseek(fd, 0, SEEK_CUR));
  }

  sqlite3_vfs* vfs_ = sqlite3_vfs_find(nullptr);
};

TEST_CASE("a disk quota that is used up keeps nothing new, is counted, and loses nothing") {
  const TempDirectory temp;
  Log log;
  const auto store = Store::open(options_for(temp, &log));
  REQUIRE(store->put(key_of("old"), record_of(1)));
  {
    const UsedUpQuota quota;
    CHECK_FALSE(store->put(key_of("new"), record_of(2, 1'000'000)));
    CHECK(same(*store->find(key_of("old"), "maker-1"), record_of(1)));
  }
  CHECK(store->stats().errors > 0);
  CHECK(store->stats().damaged == 0);
  CHECK(log.count("disk quota exceeded") == 1);
  CHECK(store->put(key_of("new"), record_of(2, 1'000'000)));
  CHECK(same(*store->find(key_of("new"), "maker-1"), record_of(2, 1'000'000)));
  CHECK(store->verify(false)->empty());
  test::fault_row("I", "disk quota used up").times += 1;
}

TEST_CASE("a database that cannot even be made keeps nothing") {
  const TempDirectory temp;
  check_status(on_small_disk(temp.path(), "4k", [&] {
    {
      std::ofstream filler(temp.path() / "filler", std::ios::binary);
      while (filler << std::string(4096, 'x') << std::flush) {
      }
    }
    Log log;
    const auto store = Store::open(options_for(temp, &log));
    if (store->put(key_of("k"), record_of(1)) || store->find(key_of("k"), "")) return 1;
    return log.lines().empty() ? 2 : 0;
  }));
  test::fault_row("I", "no space for a database (tmpfs)").times += 1;
}

}  // namespace
}  // namespace laya::cache
