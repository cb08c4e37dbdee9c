// Every option of the engine, and the one place that reads the environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/log.h"
#include "cache/result.h"
#include "jit/cpu_threads.h"

namespace laya::jit {

enum class JitMode {
  kAuto,   ///< compile what the cache does not hold
  kNever,  ///< a miss is an error (kNotCached) that says what differs
};

struct Options {
  std::filesystem::path cache_dir;                  ///< empty: keep nothing on disk
  std::vector<std::filesystem::path> cache_layers;  ///< read-only caches, searched after cache_dir
  bool copy_layer_hits = false;                     ///< put into cache_dir what a layer has
  int64_t cache_max_bytes = int64_t{2} << 30;       ///< bytes
  JitMode jit = JitMode::kAuto;
  std::chrono::seconds build_wait{60};  ///< for another process that compiles the same kernel
  int jobs = 0;                         ///< compile threads; 0: one per core
  std::filesystem::path template_dir;   ///< empty: the built-in templates
  std::filesystem::path nvrtc_library;  ///< empty: searched for
  std::vector<std::filesystem::path> include_dirs;  ///< for `#include <...>` of an app's templates
  CpuThreads cpu_threads;                           ///< to hand to open_cpu_device()
  LogLevel log_level = LogLevel::kWarning;          ///< what reaches `log`
  LogFn log;
};

/// The defaults, changed by what the environment says (see option_table()).
/// kBadInput names the variable, its value and what is allowed.
Result<Options> options_from_environment();

/// A number of bytes, with or without KiB, MiB or GiB after it. kBadInput names `name` and `text`.
Result<int64_t> parse_bytes(const char* name, const std::string& text);

/// One row of the table of options; README's table is tested against it.
struct OptionInfo {
  const char* variable;       ///< "LAYA_CACHE_DIR"
  const char* type;           ///< "path", "bytes", ...
  const char* default_value;  ///< for people
  const char* meaning;
};
std::span<const OptionInfo> option_table();

}  // namespace laya::jit
