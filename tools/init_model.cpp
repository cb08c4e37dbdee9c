// `laya init-model`: writes a synthetic checkpoint of the exact real layout and shapes.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "model/config.h"
#include "model/synthetic.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/progress.h"

namespace laya::tools {
namespace {

struct InitArgs {
  std::string preset;
  uint64_t seed = 0;
  std::filesystem::path directory;
};

int run(const InitArgs& args) {
  const Result<model::Config> config = model::preset_config(args.preset);
  if (!config) return report(config.error());
  int64_t bytes = 0;
  {
    Progress progress("writing", 100);
    model::SyntheticOptions options{.seed = args.seed};
    options.on_progress = [&](int64_t done, int64_t total) {
      bytes = total;
      progress.update(total == 0 ? 100 : done * 100 / total, format_bytes(done));
    };
    const auto written = model::write_synthetic_checkpoint(args.directory, *config, options);
    if (!written) return report(written.error());
  }
  std::printf("wrote a %s checkpoint with seed %llu, %s, to %s\n", args.preset.c_str(),
              static_cast<unsigned long long>(args.seed), format_bytes(bytes).c_str(),
              args.directory.c_str());
  return kDone;
}

}  // namespace

Command add_init_model(CLI::App& laya) {
  auto args = std::make_shared<InitArgs>();
  CLI::App* app = laya.add_subcommand("init-model", "Write a synthetic checkpoint");
  app->add_option("--preset", args->preset, "tiny, base or large")->required();
  app->add_option("--seed", args->seed, "The same seed gives the same bytes")
      ->capture_default_str();
  app->add_option("DIR", args->directory, "Where to; created if absent")->required();
  return {app, [args] { return run(*args); }};
}

}  // namespace laya::tools
