// The subcommands of `laya`: each file adds one to the command line and says how to run it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace laya::tools {

struct Command {
  CLI::App* app;             ///< owned by the App it was added to
  std::function<int()> run;  ///< after parsing; returns an exit status, see console.h
};

Command add_warm(CLI::App& laya);
Command add_predict(CLI::App& laya);
Command add_cache(CLI::App& laya);
Command add_bench(CLI::App& laya);
Command add_doctor(CLI::App& laya);
Command add_init_model(CLI::App& laya);

}  // namespace laya::tools
