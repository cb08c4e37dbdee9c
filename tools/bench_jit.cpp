// `laya bench jit`: what getting a kernel costs: compiled into an empty cache, taken from disk by a
// new process's engine, and looked up in memory; in cache directories of its own.
#include <memory>
#include <string>
#include <vector>

#include "jit/device.h"
#include "jit/engine.h"
#include "model/plan.h"
#include "tools/bench.h"
#include "tools/console.h"
#include "tools/progress.h"
#include "tools/targets.h"
#include "tools/temp_directory.h"

namespace laya::tools {
namespace {

struct BenchJitArgs {
  ModelChoice choice{{}, "base"};
  std::string target = "native";
  std::vector<std::string> dtypes;
  int repeat = 3;
  bool json = false;
};

/// Milliseconds of one kernel; memory in microseconds.
struct KernelSamples {
  Samples cold, compile, disk, memory;
};

/// True if kernels for `target` can be loaded here.
bool can_load(const jit::Target& target) {
  if (target.backend == jit::Backend::kCpu) return target == jit::host_cpu_target();
  const auto device = jit::open_cuda_device(0);
  return device && (*device)->target() == target;
}

class JitBench {
 public:
  JitBench(jit::Options options, std::vector<jit::KernelSpec> specs, int repeat)
      : options_(std::move(options)),
        specs_(std::move(specs)),
        repeat_(repeat),
        can_load_(can_load(specs_.front().target())),
        samples_(specs_.size()) {
    options_.cache_layers.clear();
    options_.jit = jit::JitMode::kAuto;
    options_.jobs = 1;  // kernels must not take time from each other
  }

  Result<std::vector<Figure>> run() {
    Progress progress("measuring", repeat_);
    for (int round = 0; round < repeat_; ++round) {
      LAYA_ASSIGN(const TempDirectory directory, TempDirectory::create());
      options_.cache_dir = directory.path() / "cache";
      LAYA_TRY(measure_cold());
      LAYA_TRY(measure_warm());
      progress.update(round + 1, "");
    }
    return figures();
  }

 private:
  Result<void> measure_cold() {
    LAYA_ASSIGN(const std::shared_ptr<jit::Engine> engine, jit::Engine::create(options_));
    for (size_t i = 0; i < specs_.size(); ++i) {
      const double compiled_before = engine->stats().compile_seconds;
      LAYA_ASSIGN(const double seconds, time_artifact(*engine, specs_[i]));
      samples_[i].cold.add(seconds * 1e3);
      samples_[i].compile.add((engine->stats().compile_seconds - compiled_before) * 1e3);
    }
    return {};
  }

  Result<void> measure_warm() {
    LAYA_ASSIGN(const std::shared_ptr<jit::Engine> engine, jit::Engine::create(options_));
    for (size_t i = 0; i < specs_.size(); ++i) {
      LAYA_ASSIGN(const double seconds, can_load_ ? time_kernel(*engine, specs_[i], 1)
                                                  : time_artifact(*engine, specs_[i]));
      samples_[i].disk.add(seconds * 1e3);
      if (!can_load_) continue;
      LAYA_ASSIGN(const double lookup, time_kernel(*engine, specs_[i], kLookups));
      samples_[i].memory.add(lookup * 1e6);
    }
    if (engine->stats().compiled == 0) return {};
    return fail(ErrorKind::kInternal, "a kernel was compiled although the cache holds it");
  }

  /// Seconds until the artifact is in the cache.
  static Result<double> time_artifact(jit::Engine& engine, const jit::KernelSpec& spec) {
    std::vector<jit::BuildReport> reports;
    const double seconds = time_of([&] { reports = engine.warm({&spec, 1}); });
    LAYA_TRY(reports.front().outcome);
    return seconds;
  }

  /// Seconds of each of `times` lookups.
  static Result<double> time_kernel(jit::Engine& engine, const jit::KernelSpec& spec, int times) {
    Result<std::shared_ptr<const jit::Kernel>> kernel;
    const double seconds = time_of([&] {
      for (int i = 0; i < times; ++i) kernel = engine.kernel(spec);
    });
    LAYA_TRY(kernel);
    return seconds / times;
  }

  std::vector<Figure> figures() const {
    std::vector<Figure> figures;
    Samples cold, compile, disk, memory;  // medians of every kernel
    for (size_t i = 0; i < specs_.size(); ++i) {
      const KernelSamples& samples = samples_[i];
      const std::string shape = specs_[i].to_string();
      figures.push_back(figure_of("cold", shape, "ms", samples.cold));
      figures.push_back(figure_of("disk", shape, "ms", samples.disk));
      cold.add(samples.cold.quantile(0.5));
      compile.add(samples.compile.quantile(0.5));
      disk.add(samples.disk.quantile(0.5));
      if (samples.memory.empty()) continue;
      figures.push_back(figure_of("memory", shape, "us", samples.memory));
      memory.add(samples.memory.quantile(0.5));
    }
    const std::string all = "median of " + std::to_string(specs_.size()) + " kernels";
    figures.push_back(figure_of("cold/all", all, "ms", cold));
    figures.push_back(figure_of("cold/compile", all, "ms", compile));
    figures.push_back(figure_of(can_load_ ? "disk/load" : "disk/read", all, "ms", disk));
    if (can_load_) figures.push_back(figure_of("memory/lookup", all, "us", memory));
    return figures;
  }

  static constexpr int kLookups = 10'000;

  jit::Options options_;
  std::vector<jit::KernelSpec> specs_;
  int repeat_;
  bool can_load_;
  std::vector<KernelSamples> samples_;
};

Result<std::vector<jit::KernelSpec>> specs_of(const BenchJitArgs& args) {
  LAYA_ASSIGN(const ModelShape shape, shape_of(args.choice));
  LAYA_ASSIGN(const std::vector<TargetDType> pairs,
              parse_target_dtypes({args.target}, args.dtypes));
  const TargetDType& pair = pairs.front();
  return model::make_plan(shape.config, {shape.table, pair.dtype}, pair.target).specs();
}

int run(const BenchJitArgs& args) {
  const Result<jit::Options> options = command_options();
  if (!options) return report(options.error());
  const auto specs = specs_of(args);
  if (!specs) return report(specs.error());
  const auto figures = JitBench(*options, *specs, args.repeat).run();
  if (!figures) return report(figures.error());
  print_figures(*figures, args.json);
  return kDone;
}

}  // namespace

Benchmark add_bench_jit(CLI::App& bench) {
  auto args = std::make_shared<BenchJitArgs>();
  CLI::App* app = bench.add_subcommand("jit", "What getting a kernel costs: cold, disk, memory");
  app->add_option("--preset", args->choice.preset, "Whose kernels: tiny, base or large")
      ->capture_default_str();
  app->add_option("--target", args->target, "Such as sm_90a; native is this CPU")
      ->capture_default_str();
  app->add_option("--dtype", args->dtypes,
                  "bf16, fp16 or fp32; default: fp32 for CPUs, fp16 for GPUs")
      ->expected(1);
  app->add_option("--repeat", args->repeat, "Rounds, each in an empty cache")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app->add_flag("--json", args->json, "Machine-readable output");
  return {app, [args] { return run(*args); }};
}

}  // namespace laya::tools
