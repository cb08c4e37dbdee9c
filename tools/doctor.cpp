// `laya doctor`: what this machine has (GPU, compilers, CPU features, cache), and what to do about
// what it lacks.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "jit/device.h"
#include "jit/engine.h"
#include "jit/target.h"
#include "tools/command.h"
#include "tools/console.h"

namespace laya::tools {
namespace {

struct Finding {
  std::string what;
  bool ok = false;
  std::string found;   ///< what is there, or why it is not
  std::string advice;  ///< what the lack means and what to do; empty if ok
};

Finding gpu_finding() {
  const auto device = jit::open_cuda_device(0);
  if (!device) {
    return {"gpu", false, device.error().message,
            "kernels for GPUs can be compiled here but not run; the CPU is used"};
  }
  return {"gpu", true, (*device)->name() + ", " + (*device)->target().name, ""};
}

Finding compiler_finding(jit::Engine& engine, jit::Backend backend, std::string what) {
  const jit::Compiler& compiler = engine.compiler(backend);
  if (compiler.identity().empty()) {
    return {std::move(what), false, compiler.unavailable_reason(),
            "only kernels that are in the cache can be used; run tools/setup or install it"};
  }
  return {std::move(what), true, "build id " + compiler.identity(), ""};
}

Finding cpu_finding() {
  const auto parts = jit::parse_cpu_target(jit::host_cpu_target());
  if (!parts) return {"cpu", false, parts.error().message, "report this as a defect"};
  std::string features;
  for (const std::string& feature : parts->features) features += " " + feature;
  return {"cpu", true, parts->cpu + " (" + parts->arch + "):" + features, ""};
}

Finding cache_finding(cache::Store& store) {
  if (store.mode() == cache::StoreMode::kMemoryOnly) {
    return {"cache", false, store.reason(),
            "nothing is kept between runs; set LAYA_CACHE_DIR to a directory of yours"};
  }
  const auto entries = store.list();
  const auto bytes = store.stored_bytes();
  if (!entries || !bytes) {
    return {"cache", false, entries ? bytes.error().message : entries.error().message,
            "run `laya cache verify`, or `laya cache clear` to begin anew"};
  }
  std::string found = store.options().directory.string() + ": " + std::to_string(entries->size()) +
                      " entries, " + format_bytes(*bytes) + " of " +
                      format_bytes(store.options().max_bytes);
  if (store.mode() == cache::StoreMode::kReadOnly) {
    return {"cache", false, found + "; read-only: " + store.reason(),
            "what is compiled here is not kept; make the directory writable to keep it"};
  }
  return {"cache", true, std::move(found), ""};
}

Finding layer_finding(const cache::Layers::Info& layer) {
  if (!layer.problem.empty()) {
    return {"layer", false, layer.path.string() + ": " + layer.problem,
            "it is left out; correct LAYA_CACHE_LAYERS or the layer"};
  }
  return {"layer", true, layer.path.string() + ": " + std::to_string(layer.entries) + " entries",
          ""};
}

Finding mode_finding(const jit::Options& options) {
  const bool never = options.jit == jit::JitMode::kNever;
  return {"jit", true, never ? "never: only what is in the cache is used" : "auto", ""};
}

void print_findings(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    std::printf("%-7s %s %s\n", finding.what.c_str(), finding.ok ? "ok  " : "NONE",
                finding.found.c_str());
    if (!finding.advice.empty()) std::printf("             -> %s\n", finding.advice.c_str());
  }
}

int run(bool json) {
  const Result<jit::Options> options = command_options();
  if (!options) return report(options.error());
  const auto engine = jit::Engine::create(*options);
  if (!engine) return report(engine.error());

  std::vector<Finding> findings{gpu_finding(),
                                compiler_finding(**engine, jit::Backend::kCuda, "nvrtc"),
                                compiler_finding(**engine, jit::Backend::kCpu, "llvm"),
                                cpu_finding(),
                                cache_finding((*engine)->store()),
                                mode_finding(*options)};
  for (const auto& layer : (*engine)->layers().describe()) {
    findings.push_back(layer_finding(layer));
  }
  if (!json) {
    print_findings(findings);
    return kDone;
  }
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"what", finding.what},
                    {"ok", finding.ok},
                    {"found", finding.found},
                    {"advice", finding.advice}});
  }
  print_json(list);
  return kDone;
}

}  // namespace

Command add_doctor(CLI::App& laya) {
  auto json = std::make_shared<bool>(false);
  CLI::App* app = laya.add_subcommand("doctor", "What this machine has and what it lacks");
  app->add_flag("--json", *json, "Machine-readable output");
  return {app, [json] { return run(*json); }};
}

}  // namespace laya::tools
