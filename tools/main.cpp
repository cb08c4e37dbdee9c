// The `laya` command: reads the command line and runs one subcommand.
// Exit status: 0 done, 1 the work failed, 2 wrong usage.
#include <array>
#include <cstdio>
#include <exception>

#include "tools/command.h"
#include "tools/console.h"

namespace laya::tools {
namespace {

int run(int argc, char** argv) {
  CLI::App laya("Kernel JIT with a persistent cache, and the Laya decision model on top of it");
  laya.set_version_flag("--version", "laya " LAYA_VERSION);
  laya.require_subcommand(1);
  const std::array commands{add_warm(laya),  add_predict(laya), add_cache(laya),
                            add_bench(laya), add_doctor(laya),  add_init_model(laya)};
  try {
    laya.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return laya.exit(error) == 0 ? kDone : kWrongUsage;
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const int status = command.run();
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    note("the output could not be written");
    return kWorkFailed;
  }
  return kWrongUsage;
}

}  // namespace
}  // namespace laya::tools

int main(int argc, char** argv) {
  try {
    return laya::tools::run(argc, argv);
  } catch (const std::exception& error) {  // out of memory, above all
    laya::tools::note(error.what());
    return laya::tools::kWorkFailed;
  }
}
