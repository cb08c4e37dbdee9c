#include "jit/options.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "cache/directory.h"

namespace laya::jit {
namespace {

constexpr OptionInfo kTable[] = {
    {"LAYA_CACHE_DIR", "path", "$XDG_CACHE_HOME/laya, else ~/.cache/laya",
     "the cache directory; where none is writable, kernels are kept in memory only"},
    {"LAYA_CACHE_LAYERS", "paths, separated by :", "none",
     "read-only caches to look in after the cache directory"},
    {"LAYA_CACHE_COPY", "yes, no", "no",
     "yes: a kernel found in a layer is copied into the cache directory"},
    {"LAYA_CACHE_MAX_BYTES", "bytes, or with KiB, MiB, GiB", "2GiB",
     "size cap of the cache directory; least recently used goes first"},
    {"LAYA_JIT", "auto, never", "auto",
     "never: a kernel that is not in the cache is an error and nothing is compiled"},
    {"LAYA_JIT_WAIT", "seconds", "60",
     "how long to wait for another process that compiles the same kernel, before compiling it "
     "here too"},
    {"LAYA_JIT_JOBS", "count", "one per core", "compile threads"},
    {"LAYA_TEMPLATE_DIR", "path", "the built-in templates",
     "read kernel templates from the folders cuda and cpu in this directory"},
    {"LAYA_NVRTC", "path", "searched for", "the NVRTC library to compile CUDA kernels with"},
    {"LAYA_CPU_THREADS", "count", "one per core", "threads that run the kernels of the CPU"},
    {"LAYA_CPU_PIN", "yes, no", "no", "yes: each of them stays on a core of its own"},
    {"LAYA_LOG", "error, warning, info, debug", "warning", "how much is logged"},
};

/// Unset and empty are the same.
std::optional<std::string> env(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::string> passwd_home() {
  char buffer[4096];
  passwd entry{};
  passwd* found = nullptr;
  const int error = getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found);
  if (error != 0 || found == nullptr || found->pw_dir == nullptr) return std::nullopt;
  return found->pw_dir;
}

tl::unexpected<Error> bad(const char* name, const std::string& value, const char* allowed) {
  return fail(ErrorKind::kBadInput, std::string(name) + "='" + value + "': allowed is " + allowed);
}

Result<int64_t> parse_count(const char* name, const std::string& text, const char* allowed) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || count < 0 || end != text.data() + text.size()) {
    return bad(name, text, allowed);
  }
  return count;
}

/// 0 where the variable is not set.
Result<int> thread_count(const char* name) {
  const auto text = env(name);
  if (!text) return 0;
  LAYA_ASSIGN(const int64_t count, parse_count(name, *text, "a count of threads"));
  return static_cast<int>(std::min<int64_t>(count, 1024));
}

std::vector<std::filesystem::path> split_paths(const std::string& text) {
  std::vector<std::filesystem::path> paths;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) paths.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

template <class T>
struct Word {
  const char* name;
  T value;
};

template <class T, size_t n>
Result<T> parse_word(const char* variable, const std::string& text, const Word<T> (&words)[n],
                     const char* allowed) {
  for (const Word<T>& word : words) {
    if (text == word.name) return word.value;
  }
  return bad(variable, text, allowed);
}

constexpr Word<JitMode> kModes[] = {{"auto", JitMode::kAuto}, {"never", JitMode::kNever}};
constexpr Word<bool> kYesNo[] = {{"yes", true}, {"no", false}};
constexpr int64_t kLongestWait = int64_t{24} * 60 * 60;  // seconds; far beyond any compile
constexpr Word<LogLevel> kLevels[] = {{"error", LogLevel::kError},
                                      {"warning", LogLevel::kWarning},
                                      {"info", LogLevel::kInfo},
                                      {"debug", LogLevel::kDebug}};

}  // namespace

Result<int64_t> parse_bytes(const char* name, const std::string& text) {
  constexpr const char* allowed = "a number of bytes, such as 2GiB";
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || count < 0) return bad(name, text, allowed);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const int shift = unit.empty()    ? 0
                    : unit == "KiB" ? 10
                    : unit == "MiB" ? 20
                    : unit == "GiB" ? 30
                                    : -1;
  if (shift < 0 || count > (INT64_MAX >> shift)) return bad(name, text, allowed);
  return count << shift;
}

Result<Options> options_from_environment() {
  Options options;
  options.cache_dir = cache::resolve_directory(
      {env("LAYA_CACHE_DIR"), env("XDG_CACHE_HOME"), env("HOME"), passwd_home()});
  if (const auto text = env("LAYA_CACHE_LAYERS")) options.cache_layers = split_paths(*text);
  if (const auto text = env("LAYA_CACHE_COPY")) {
    LAYA_ASSIGN(options.copy_layer_hits, parse_word("LAYA_CACHE_COPY", *text, kYesNo, "yes or no"));
  }
  if (const auto text = env("LAYA_CACHE_MAX_BYTES")) {
    LAYA_ASSIGN(options.cache_max_bytes, parse_bytes("LAYA_CACHE_MAX_BYTES", *text));
  }
  if (const auto text = env("LAYA_JIT")) {
    LAYA_ASSIGN(options.jit, parse_word("LAYA_JIT", *text, kModes, "auto or never"));
  }
  if (const auto text = env("LAYA_JIT_WAIT")) {
    LAYA_ASSIGN(const int64_t seconds, parse_count("LAYA_JIT_WAIT", *text, "a number of seconds"));
    options.build_wait = std::chrono::seconds(std::min(seconds, kLongestWait));
  }
  LAYA_ASSIGN(options.jobs, thread_count("LAYA_JIT_JOBS"));
  if (const auto text = env("LAYA_TEMPLATE_DIR")) options.template_dir = *text;
  if (const auto text = env("LAYA_NVRTC")) options.nvrtc_library = *text;
  LAYA_ASSIGN(options.cpu_threads.count, thread_count("LAYA_CPU_THREADS"));
  if (const auto text = env("LAYA_CPU_PIN")) {
    LAYA_ASSIGN(options.cpu_threads.are_pinned,
                parse_word("LAYA_CPU_PIN", *text, kYesNo, "yes or no"));
  }
  if (const auto text = env("LAYA_LOG")) {
    LAYA_ASSIGN(options.log_level,
                parse_word("LAYA_LOG", *text, kLevels, "error, warning, info or debug"));
  }
  return options;
}

std::span<const OptionInfo> option_table() {
  return kTable;
}

}  // namespace laya::jit
