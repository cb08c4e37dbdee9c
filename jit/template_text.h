// Small readers shared by the declaration parser and the expander.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace laya::jit {

/// The whole text as a number, or nothing.
inline std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// True for fp32, bf16, fp16.
inline bool is_dtype_word(std::string_view word) {
  return word == "fp32" || word == "bf16" || word == "fp16";
}

}  // namespace laya::jit
