// The lock between processes: it excludes, it waits for a bounded time, and death releases it.
#include "cache/file_lock.h"

#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <optional>
#include <thread>

#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using std::chrono::milliseconds;
using test::TempDirectory;

TEST_CASE("a lock excludes others until it is released") {
  const TempDirectory temp;
  const auto file = temp.path() / "lock";
  {
    const auto lock = FileLock::acquire(file, milliseconds(0));
    REQUIRE(lock);
    const auto second = FileLock::acquire(file, milliseconds(3));
    REQUIRE_FALSE(second);
    CHECK(second.error().fault == Fault::kBusy);
    CHECK(test::in_child([&] { return FileLock::acquire(file, milliseconds(0)) ? 1 : 0; }) == 0);
    CHECK(FileLock::acquire(temp.path() / "other", milliseconds(0)));
  }
  CHECK(FileLock::acquire(file, milliseconds(0)));
  struct stat info = {};
  REQUIRE(::stat(file.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
}

TEST_CASE("a lock that is released in time is waited for") {
  const TempDirectory temp;
  const auto file = temp.path() / "lock";
  std::optional<FileLock> lock = *FileLock::acquire(file, milliseconds(0));
  std::thread release([&] {
    std::this_thread::sleep_for(milliseconds(10));
    lock.reset();
  });
  CHECK(FileLock::acquire(file, std::chrono::seconds(60)));
  release.join();
}

TEST_CASE("the lock of a killed process is free") {
  const TempDirectory temp;
  const auto file = temp.path() / "lock";
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const pid_t child = test::start_child([&] {
    const auto lock = FileLock::acquire(file, milliseconds(0));
    const bool sent = ::write(ready[1], lock ? "y" : "n", 1) == 1;
    while (sent) ::pause();
    return 1;
  });
  char answer = 0;
  REQUIRE(::read(ready[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  CHECK_FALSE(FileLock::acquire(file, milliseconds(0)));
  ::kill(child, SIGKILL);
  CHECK(test::status_of(child) == -SIGKILL);
  CHECK(FileLock::acquire(file, milliseconds(0)));
  for (const int end : ready) ::close(end);
  test::fault_row("C", "owner of the lock killed").times += 1;
}

TEST_CASE("a lock file that cannot be opened is a failure and not a wait") {
  const TempDirectory temp;
  std::filesystem::create_symlink(temp.path() / "target", temp.path() / "link");
  for (const auto& file : {temp.path() / "missing" / "lock", temp.path() / "link"}) {
    const auto lock = FileLock::acquire(file, std::chrono::hours(1));
    REQUIRE_FALSE(lock);
    CHECK(lock.error().fault == Fault::kOther);
    CHECK(lock.error().message.find(file.string()) != std::string::npos);
  }
}

}  // namespace
}  // namespace laya::cache
