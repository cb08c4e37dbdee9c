// fork() while kernels are being built: parent and child go on, and neither waits for the other.
#include <future>
#include <thread>

#include "jit/single_flight.h"
#include "tests/jit/faults_support.h"
#include "tests/temp_dir.h"

using namespace laya;
using namespace laya::jit;
using namespace laya::test;

TEST_CASE("a fork in the middle of a compile leaves both sides with a builder that works") {
  const TempDir dir;
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
