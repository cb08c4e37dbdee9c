// What all commands share: exit status, error lines, figures for people, the engine's options.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cache/result.h"
#include "jit/options.h"

namespace laya::tools {

/// JSON that keeps the order in which fields were written, so that output is easy to read.
using Json = nlohmann::ordered_json;

enum ExitStatus : int {
  kDone = 0,
  kWorkFailed = 1,
  kWrongUsage = 2,
};

/// Writes "laya: message" and the error's detail to stderr. Returns kWrongUsage for kBadInput,
/// which is a wrong value on the command line, in the environment or in an input file; else
/// kWorkFailed.
int report(const Error& error);

/// Writes "laya: line" to stderr.
void note(std::string_view line);

/// Writes `value` and a newline to stdout; text that is not UTF-8 is shown with replacement marks.
void print_json(const Json& value);

/// "812 B", "3.4 KiB", "1.2 GiB"
std::string format_bytes(int64_t bytes);
/// "12 us", "3.40 ms", "1.25 s", "2 min 05 s"
std::string format_seconds(double seconds);
/// The name of a target or a kernel without the long list of CPU features at its end.
std::string without_features(std::string_view name);
/// printf's %.*f as a string.
std::string format_fixed(double value, int digits);

/// The options that the environment asks for, with the log going to stderr.
Result<jit::Options> command_options();

}  // namespace laya::tools
