#include "tools/bench_flight.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "jit/engine.h"
#include "tools/child_process.h"
#include "tools/progress.h"
#include "tools/temp_directory.h"

namespace laya::tools {
namespace {

struct Flight {
  double seconds = 0;
  int64_t compiled = 0;  ///< by those that lived to the end
};

/// Some processes start together and want the same kernels; the clock runs until the last is
/// done. With `kill_after` seconds, the first of them is killed then.
Result<Flight> fly(const FlightBench& options, int processes,
                   const std::filesystem::path& directory, std::optional<double> kill_after) {
  std::vector<ChildProcess> children;
  Flight flight;
  const auto started = std::chrono::steady_clock::now();
  for (int p = 0; p < processes; ++p) {
    LAYA_ASSIGN(ChildProcess child, ChildProcess::start([&] {
                  jit::Options own = options.engine;
                  own.cache_dir = directory;
                  const auto engine = jit::Engine::create(own);
                  if (!engine) return std::array{-1.0, 0.0};
                  int64_t ready = 0;
                  for (const auto& report : (*engine)->warm(options.specs)) {
                    ready += report.outcome.has_value();
                  }
                  return std::array{static_cast<double>((*engine)->stats().compiled),
                                    static_cast<double>(ready)};
                }));
    children.push_back(child);
  }
  if (kill_after) {
    std::this_thread::sleep_for(std::chrono::duration<double>(*kill_after));
    children.front().kill();
    children.erase(children.begin());
  }
  for (const ChildProcess& child : children) {
    LAYA_ASSIGN(const auto numbers, child.finish());
    if (numbers[1] != static_cast<double>(options.specs.size())) {
      return fail(ErrorKind::kInternal, "a process did not get all kernels");
    }
    flight.compiled += static_cast<int64_t>(numbers[0]);
  }
  flight.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return flight;
}

}  // namespace

Result<std::vector<Figure>> bench_flight(const FlightBench& options) {
  struct Arm {
    const char* name;
    int processes;
    std::optional<double> kill_at = {};  ///< as a part of the first arm's time
    Samples seconds = {};
    int64_t compiled = 0;
  };
  std::array arms{Arm{"cold, 1 process", 1},
                  Arm{"warm, 1 process", 1},
                  Arm{"cold, many processes", options.processes},
                  Arm{"warm, many processes", options.processes},
                  Arm{"cold, many processes, one killed", options.processes, 0.5},
                  Arm{"no cache, 1 process", 1}};
  Progress progress("compiling", options.repeat);
  for (int round = 0; round < options.repeat; ++round) {
    LAYA_ASSIGN(const TempDirectory alone, TempDirectory::create());
    LAYA_ASSIGN(const TempDirectory shared, TempDirectory::create());
    LAYA_ASSIGN(const TempDirectory crashed, TempDirectory::create());
    const std::array<std::filesystem::path, 6> directories{
        alone.path(), alone.path(), shared.path(), shared.path(), crashed.path(), {}};
    double alone_seconds = 0;
    for (size_t i = 0; i < arms.size(); ++i) {
      std::optional<double> kill_after;
      if (arms[i].kill_at) kill_after = *arms[i].kill_at * alone_seconds;
      LAYA_ASSIGN(const Flight flight, fly(options, arms[i].processes, directories[i], kill_after));
      if (i == 0) alone_seconds = flight.seconds;
      arms[i].seconds.add(flight.seconds);
      arms[i].compiled = std::max(arms[i].compiled, flight.compiled);
    }
    progress.update(round + 1, "");
  }
  std::vector<Figure> figures;
  for (Arm& arm : arms) {
    const std::string shape = std::to_string(arm.processes) + " processes, " +
                              std::to_string(options.specs.size()) + " keys";
    Figure figure = figure_of(arm.name, shape, "s", arm.seconds);
    if (&arm != &arms[0]) figure.reference = arms[0].seconds.quantile(0.5);
    figures.push_back(figure);
    figures.push_back({std::string("kernels compiled, ") + arm.name,
                       shape,
                       static_cast<double>(arm.compiled),
                       "",
                       {},
                       {},
                       {}});
  }
  return figures;
}

}  // namespace laya::tools
