// Of many processes that miss the same record one builds it: await_turn().
#include <signal.h>

#include <array>
#include <chrono>
#include <thread>

#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using std::chrono::milliseconds;
using test::key_of;
using test::Log;
using test::options_for;
using test::record_of;
using test::same;
using test::TempDirectory;

constexpr int kKeys = 14;
constexpr milliseconds kBuildTime{3};

/// Finds or builds all keys as an engine would, in an order of its own; returns how many it built,
/// or 100 if something is wrong. A line is appended to `log` before a build and after its put().
int build_all(const TempDirectory& temp, const std::filesystem::path& log, int first) {
  StoreOptions options = options_for(temp);
  options.busy_timeout = std::chrono::seconds(60);
  const auto store = Store::open(options);
  int built = 0;
  for (int i = 0; i < kKeys; ++i) {
    const int number = (first + i) % kKeys;
    const Key key = key_of(std::to_string(number));
    const Record wanted = record_of(static_cast<uint32_t>(number));
    auto record = store->find(key, "maker-1");
    if (!record) {
      BuildTurn turn = store->await_turn(key, "maker-1");
      record = std::move(turn.record);
      if (!record) {
        if (!turn.claim) return 100;
        std::ofstream(log, std::ios::app) << "begin " << number << "\n";
        std::this_thread::sleep_for(kBuildTime);
        if (!store->put(key, wanted)) return 100;
        std::ofstream(log, std::ios::app) << "end " << number << "\n";
        ++built;
        continue;
      }
    }
    if (!same(*record, wanted)) return 100;
  }
  return built;
}

int lines_with(const std::filesystem::path& log, const std::string& word) {
  std::ifstream stream(log);
  int lines = 0;
  for (std::string line; std::getline(stream, line);) lines += line.starts_with(word);
  return lines;
}

/// 16 processes released together; `kill_one`: one of them dies in the middle of a build.
void race(bool kill_one) {
  const TempDirectory temp("cache"), notes;
  const auto log = notes.path() / "log";
  std::array<int, 2> gate{};
  REQUIRE(::pipe(gate.data()) == 0);
  constexpr int kProcesses = 16;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(test::start_child([&, p] {
      ::close(gate[1]);
      char byte = 0;
      if (::read(gate[0], &byte, 1) != 0) return 100;  // Until the parent closes its end.
      return build_all(temp, log, p % 3 == 0 ? p : 0);
    }));
  }
  pid_t victim = 0;
  if (kill_one) {
    victim = test::start_child([&] {
      const auto store = Store::open(options_for(temp));
      const auto turn = store->await_turn(key_of("0"), "maker-1");
      std::ofstream(log, std::ios::app) << "victim\n";
      ::pause();  // Killed with the claim in its hands.
      return 0;
    });
    while (lines_with(log, "victim") == 0) std::this_thread::sleep_for(milliseconds(1));
  }
  for (const int end : gate) ::close(end);
  if (kill_one) {
    std::this_thread::sleep_for(milliseconds(30));
    CHECK(lines_with(log, "begin 0") == 0);
    ::kill(victim, SIGKILL);
    CHECK(test::status_of(victim) == -SIGKILL);
  }
  int built = 0;
  for (const pid_t child : children) {
    const int status = test::status_of(child);
    CHECK(status >= 0);
    CHECK(status <= kKeys);
    built += status;
  }
  CHECK(built == kKeys);
  CHECK(lines_with(log, "begin") == kKeys);
  CHECK(Store::open(options_for(temp))->list()->size() == kKeys);
}

TEST_CASE("16 processes released together on an empty cache build each of 14 keys once") {
  race(/*kill_one=*/false);
}

TEST_CASE("the same when one of them is killed while it builds") {
  race(/*kill_one=*/true);
}

TEST_CASE("who waits too long gets no claim and builds all the same") {
  const TempDirectory temp;
  const auto owner = Store::open(options_for(temp));
  const auto turn = owner->await_turn(key_of("a"), "maker-1");
  REQUIRE(turn.claim);
  Log log;
  StoreOptions options = options_for(temp, &log);
  options.build_wait = milliseconds(10);
  const auto store = Store::open(options);
  const auto late = store->await_turn(key_of("a"), "maker-1");
  CHECK_FALSE(late.claim);
  CHECK_FALSE(late.record);
  CHECK(store->stats().busy == 1);
  CHECK(log.lines().size() == 1);
  CHECK(store->put(key_of("a"), record_of(1)));
  CHECK(store->await_turn(key_of("b"), "maker-1").claim);
}

TEST_CASE("a turn brings the record that was stored since the miss") {
  const TempDirectory temp;
  const auto store = Store::open(options_for(temp));
  CHECK_FALSE(store->find(key_of("a"), "maker-1"));
  REQUIRE(Store::open(options_for(temp))->put(key_of("a"), record_of(1)));
  const auto turn = store->await_turn(key_of("a"), "maker-1");
  REQUIRE(turn.record);
  CHECK(same(*turn.record, record_of(1)));
  CHECK_FALSE(turn.claim);
  CHECK(store->stats().waits == 1);
  CHECK(store->stats().misses == 1);
}

TEST_CASE("where nothing can be stored nobody waits") {
  const auto store = Store::open({});
  const auto turn = store->await_turn(key_of("a"), "maker-1");
  CHECK_FALSE(turn.claim);
  CHECK_FALSE(turn.record);
}

}  // namespace
}  // namespace laya::cache
