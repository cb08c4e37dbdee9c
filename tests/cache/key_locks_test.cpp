// The locks of those who build: per key, bounded, given back by death and by a fork.
#include "cache/key_locks.h"

#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <optional>
#include <thread>

#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using std::chrono::milliseconds;
using test::in_child;
using test::TempDirectory;

const Digest kA = digest_of("a"), kB = digest_of("b");

bool can_lock(const std::filesystem::path& file, const Digest& key, milliseconds timeout = {}) {
  return KeyLocks(file).acquire(key, "maker", timeout).has_value();
}

TEST_CASE("a claim excludes others of its key, and of no other") {
  const TempDirectory temp;
  const auto file = temp.path() / "locks";
  KeyLocks locks(file), others(file);
  {
    const auto claim = locks.acquire(kA, "maker", milliseconds(0));
    REQUIRE(claim);
    const auto second = others.acquire(kA, "maker", milliseconds(5));
    REQUIRE_FALSE(second);
    CHECK(second.error().fault == Fault::kBusy);
    CHECK(second.error().message.find(file.string()) != std::string::npos);
    CHECK_FALSE(locks.acquire(kA, "maker", milliseconds(0)));  // Also within one KeyLocks.
    CHECK(others.acquire(kB, "maker", milliseconds(0)));
    CHECK(others.acquire(kA, "another maker", milliseconds(0)));
    CHECK(in_child([&] { return can_lock(file, kA) ? 1 : 0; }) == 0);
    CHECK(in_child([&] { return can_lock(file, kB) ? 0 : 1; }) == 0);
  }
  CHECK(others.acquire(kA, "maker", milliseconds(0)));
  struct stat info = {};
  REQUIRE(::stat(file.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
}

TEST_CASE("a claim that is given back in time is waited for") {
  const TempDirectory temp;
  KeyLocks locks(temp.path() / "locks");
  auto claim = *locks.acquire(kA, "maker", milliseconds(0));
  std::jthread owner([&] {
    std::this_thread::sleep_for(milliseconds(20));
    claim.reset();
  });
  CHECK(can_lock(temp.path() / "locks", kA, milliseconds(30'000)));
}

TEST_CASE("a claim goes with the process that held it") {
  const TempDirectory temp;
  const auto file = temp.path() / "locks";
  std::array<int, 2> held{};
  REQUIRE(::pipe(held.data()) == 0);
  const pid_t owner = test::start_child([&] {
    KeyLocks locks(file);
    const auto claim = locks.acquire(kA, "maker", milliseconds(0));
    if (::write(held[1], claim ? "y" : "n", 1) != 1) return 1;
    ::pause();
    return 0;
  });
  char answer = 0;
  REQUIRE(::read(held[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  CHECK_FALSE(can_lock(file, kA));
  ::kill(owner, SIGKILL);
  CHECK(can_lock(file, kA, milliseconds(30'000)));
  CHECK(test::status_of(owner) == -SIGKILL);
  for (const int end : held) ::close(end);
}

TEST_CASE("a child forked while a claim is held neither keeps nor releases it") {
  const TempDirectory temp;
  const auto file = temp.path() / "locks";
  KeyLocks locks(file);
  std::array<int, 2> go{};
  REQUIRE(::pipe(go.data()) == 0);
  auto claim = *locks.acquire(kA, "maker", milliseconds(0));
  const pid_t child = test::start_child([&] {
    claim.reset();  // Its copy.
    char byte = 0;
    return ::read(go[0], &byte, 1) == 1 ? 0 : 1;
  });
  CHECK_FALSE(can_lock(file, kA));
  claim.reset();
  CHECK(can_lock(file, kA));  // The child is still alive.
  CHECK(::write(go[1], "x", 1) == 1);
  CHECK(test::status_of(child) == 0);
  for (const int end : go) ::close(end);
}

TEST_CASE("where no lock file can be made a claim fails and does not wait") {
  const auto failed =
      KeyLocks("/dev/null/locks").acquire(kA, "maker", std::chrono::milliseconds(60'000));
  REQUIRE_FALSE(failed);
  CHECK(failed.error().fault == Fault::kOther);
}

}  // namespace
}  // namespace laya::cache
