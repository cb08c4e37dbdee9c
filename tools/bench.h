// What the benchmarks share: samples, figures beside their references, and their output.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace laya::tools {

/// Measured values of one thing.
class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  bool empty() const { return values_.empty(); }
  /// The value that `share` (0 to 1) of the samples do not exceed. Precondition: not empty.
  double quantile(double share) const;

 private:
  std::vector<double> values_;
};

/// One line of a benchmark's result.
struct Figure {
  std::string name;
  std::string shape;
  double value = 0;
  std::string unit;
  /// What the same takes elsewhere, in the same unit; or value / reference is a ratio measured by
  /// itself.
  std::optional<double> reference;
  std::optional<double> p50, p95;
};

/// The median as the value. Precondition: not empty.
Figure figure_of(std::string name, std::string shape, std::string unit, const Samples& samples);

/// As a table, or as JSON: [{"name","shape","value","unit","reference","ratio","p50","p95"}];
/// ratio is value / reference, so below 1 is less than the reference.
void print_figures(const std::vector<Figure>& figures, bool json);

/// Seconds that `work` takes.
double time_of(const std::function<void()>& work);
/// Seconds that this thread computes during `work`: what others take from it does not count.
double computing_time_of(const std::function<void()>& work);

/// A benchmark of `laya bench`.
struct Benchmark {
  CLI::App* app;
  std::function<int()> run;
};
Benchmark add_bench_cache(CLI::App& bench);
Benchmark add_bench_jit(CLI::App& bench);
Benchmark add_bench_kernels(CLI::App& bench);
Benchmark add_bench_model(CLI::App& bench);

}  // namespace laya::tools
