// `laya bench cache | jit | kernels | model`.
#include "tools/bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>

#include "tools/command.h"
#include "tools/console.h"
#include "tools/table.h"

namespace laya::tools {
namespace {

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

std::optional<double> ratio_of(const Figure& figure) {
  if (!figure.reference || *figure.reference == 0) return std::nullopt;
  return figure.value / *figure.reference;
}

std::string cell(const std::optional<double>& value) {
  return value ? format_fixed(*value, 3) : std::string("-");
}

}  // namespace

double Samples::quantile(double share) const {
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

Figure figure_of(std::string name, std::string shape, std::string unit, const Samples& samples) {
  Figure figure{
      std::move(name), std::move(shape), samples.quantile(0.5), std::move(unit), {}, {}, {}};
  figure.p50 = figure.value;
  figure.p95 = samples.quantile(0.95);
  return figure;
}

void print_figures(const std::vector<Figure>& figures, bool json) {
  if (json) {
    Json list = Json::array();
    for (const Figure& figure : figures) {
      list.push_back({{"name", figure.name},
                      {"shape", figure.shape},
                      {"value", figure.value},
                      {"unit", figure.unit},
                      {"reference", or_null(figure.reference)},
                      {"ratio", or_null(ratio_of(figure))},
                      {"p50", or_null(figure.p50)},
                      {"p95", or_null(figure.p95)}});
    }
    print_json(list);
    return;
  }
  Table table({"name", ">value", "unit", ">p95", ">reference", ">ratio", "shape"});
  for (const Figure& figure : figures) {
    table.add_row({figure.name, format_fixed(figure.value, 3), figure.unit, cell(figure.p95),
                   cell(figure.reference), cell(ratio_of(figure)), without_features(figure.shape)});
  }
  table.print();
}

double time_of(const std::function<void()>& work) {
  const auto started = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

double computing_time_of(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double started = now();
  work();
  return now() - started;
}

Command add_bench(CLI::App& laya) {
  CLI::App* app = laya.add_subcommand("bench", "Measure");
  app->require_subcommand(1);
  const std::array benchmarks{add_bench_cache(*app), add_bench_jit(*app), add_bench_kernels(*app),
                              add_bench_model(*app)};
  return {app, [benchmarks]() -> int {
            for (const Benchmark& benchmark : benchmarks) {
              if (benchmark.app->parsed()) return benchmark.run();
            }
            return kWrongUsage;
          }};
}

}  // namespace laya::tools
