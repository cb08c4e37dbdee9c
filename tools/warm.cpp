// `laya warm`: compiles every kernel that a model needs into the cache. Needs no GPU.
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "jit/engine.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/progress.h"
#include "tools/table.h"
#include "tools/targets.h"

namespace laya::tools {
namespace {

struct WarmArgs {
  ModelChoice choice;
  std::vector<std::string> targets;
  std::vector<std::string> dtypes;
  int jobs = 0;
  bool json = false;
};

struct WarmCounts {
  int64_t compiled = 0, disk_hits = 0, failed = 0;
};

WarmCounts count(const std::vector<jit::BuildReport>& reports) {
  WarmCounts counts;
  for (const jit::BuildReport& report : reports) {
    if (!report.outcome) {
      ++counts.failed;
    } else if (*report.outcome == jit::BuildSource::kCompiled) {
      ++counts.compiled;
    } else {
      ++counts.disk_hits;
    }
  }
  return counts;
}

/// Builds `specs` with progress on stderr.
std::vector<jit::BuildReport> build(jit::Engine& engine,
                                    const std::vector<jit::KernelSpec>& specs) {
  Progress progress("compiling", static_cast<int64_t>(specs.size()));
  int64_t done = 0;
  return engine.warm(specs, [&](const jit::BuildReport& report) {
    ++done;
    // A run that finds everything stays silent: it is over before anyone can read.
    const bool is_hit = report.outcome && *report.outcome != jit::BuildSource::kCompiled;
    if (!is_hit) progress.update(done, without_features(report.spec.to_string()));
  });
}

/// What a later process finds: looks every kernel up in a fresh engine that may not compile.
/// The error names the first kernel that is missing.
Result<void> replay(jit::Options options, const std::vector<jit::KernelSpec>& specs) {
  options.jit = jit::JitMode::kNever;
  LAYA_ASSIGN(const std::shared_ptr<jit::Engine> engine, jit::Engine::create(options));
  for (const jit::BuildReport& report : engine->warm(specs)) {
    if (report.outcome) continue;
    const std::string reason = engine->store().reason();
    return fail(ErrorKind::kNotCached, "the cache has a gap: " + report.outcome.error().message +
                                           (reason.empty() ? "" : " (" + reason + ")"));
  }
  return {};
}

Json to_json(const jit::BuildReport& report) {
  Json json = {{"template", report.spec.template_name()},
               {"target", report.spec.target().name},
               {"seconds", report.seconds},
               {"bytes", report.artifact_bytes},
               {"registers", report.attributes.registers},
               {"spill_bytes", report.attributes.local_bytes},
               {"source", report.outcome ? Json(jit::to_string(*report.outcome)) : Json()},
               {"spec", report.spec.to_string()}};
  if (!report.outcome) json["error"] = report.outcome.error().to_string();
  return json;
}

void print_reports(const std::vector<jit::BuildReport>& reports) {
  Table table({"source", ">time", ">size", ">registers", ">spill", "kernel"});
  for (const jit::BuildReport& report : reports) {
    const bool is_cuda = report.spec.target().backend == jit::Backend::kCuda;
    table.add_row({report.outcome ? jit::to_string(*report.outcome) : "FAILED",
                   format_seconds(report.seconds), format_bytes(report.artifact_bytes),
                   is_cuda ? std::to_string(report.attributes.registers) : "-",
                   is_cuda ? format_bytes(report.attributes.local_bytes) : "-",
                   without_features(report.spec.to_string())});
  }
  table.print();
}

void print_outcome(const std::vector<jit::BuildReport>& reports, double seconds, bool json) {
  const WarmCounts counts = count(reports);
  if (!json) {
    print_reports(reports);
    std::printf("%zu kernels: %lld compiled, %lld found, %lld failed; %s\n", reports.size(),
                static_cast<long long>(counts.compiled), static_cast<long long>(counts.disk_hits),
                static_cast<long long>(counts.failed), format_seconds(seconds).c_str());
    return;
  }
  Json kernels = Json::array();
  for (const jit::BuildReport& report : reports) kernels.push_back(to_json(report));
  print_json({{"specs", reports.size()},
              {"compiled", counts.compiled},
              {"disk_hits", counts.disk_hits},
              {"failed", counts.failed},
              {"seconds", seconds},
              {"kernels", kernels}});
}

int run(const WarmArgs& args) {
  const auto started = std::chrono::steady_clock::now();
  Result<jit::Options> options = command_options();
  if (!options) return report(options.error());
  if (args.jobs > 0) options->jobs = args.jobs;
  const auto plans = plans_of(args.choice, args.targets, args.dtypes);
  if (!plans) return report(plans.error());
  const auto engine = jit::Engine::create(*options);
  if (!engine) return report(engine.error());

  cache::Store& store = (*engine)->store();
  if (store.mode() == cache::StoreMode::kMemoryOnly) {
    return report({ErrorKind::kStoreError, "the cache keeps nothing: " + store.reason(), {}});
  }
  const std::vector<jit::KernelSpec> specs = specs_of(*plans, **engine);
  const std::vector<jit::BuildReport> reports = build(**engine, specs);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  print_outcome(reports, seconds.count(), args.json);

  const WarmCounts counts = count(reports);
  for (const jit::BuildReport& each : reports) {
    if (!each.outcome) report(each.outcome.error());
  }
  if (counts.failed > 0) return kWorkFailed;
  // Where nothing was compiled, this run was the replay.
  if (counts.compiled == 0) return kDone;
  const Result<void> complete = replay(*options, specs);
  return complete ? kDone : report(complete.error());
}

}  // namespace

Command add_warm(CLI::App& laya) {
  auto args = std::make_shared<WarmArgs>();
  args->targets = {"native"};
  CLI::App* app =
      laya.add_subcommand("warm", "Compile every kernel of a model into the cache; needs no GPU");
  app->add_option("--model", args->choice.directory, "A checkpoint directory");
  app->add_option("--preset", args->choice.preset, "Or a model's shape: tiny, base or large");
  app->add_option("--target", args->targets, "Such as sm_90a,sm_80,cpu; native is this CPU")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--dtype", args->dtypes,
                  "bf16, fp16 or fp32, comma-separated; default: fp32 for CPUs, fp16 for GPUs")
      ->delimiter(',');
  app->add_option("--jobs", args->jobs, "Compile threads; default: LAYA_JIT_JOBS")
      ->check(CLI::Range(1, 1024));
  app->add_flag("--json", args->json, "Machine-readable output");
  return {app, [args] { return run(*args); }};
}

}  // namespace laya::tools
