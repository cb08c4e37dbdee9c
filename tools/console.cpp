#include "tools/console.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace laya::tools {
namespace {

const char* to_word(LogLevel level) {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: return "debug";
  }
  return "log";
}

}  // namespace

int report(const Error& error) {
  note(error.message);
  if (!error.detail.empty()) std::fprintf(stderr, "%s\n", error.detail.c_str());
  return error.kind == ErrorKind::kBadInput ? kWrongUsage : kWorkFailed;
}

void note(std::string_view line) {
  // One call, so that lines of several threads do not mix.
  std::fprintf(stderr, "laya: %.*s\n", static_cast<int>(line.size()), line.data());
}

void print_json(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

std::string format_fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string without_features(std::string_view name) {
  return std::string(name.substr(0, name.find(":+")));
}

std::string format_bytes(int64_t bytes) {
  static constexpr std::array kUnits{"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return format_fixed(value, 1) + " " + kUnits[unit];
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return format_fixed(seconds * 1e6, 0) + " us";
  if (seconds < 1) return format_fixed(seconds * 1e3, 2) + " ms";
  if (seconds < 60) return format_fixed(seconds, 2) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%lld min %02lld s", static_cast<long long>(whole / 60),
                static_cast<long long>(whole % 60));
  return text.data();
}

Result<jit::Options> command_options() {
  LAYA_ASSIGN(jit::Options options, jit::options_from_environment());
  options.log = [](LogLevel level, std::string_view line) {
    note(std::string(to_word(level)) + ": " + std::string(line));
  };
  return options;
}

}  // namespace laya::tools
