// Serialised keys: writing, digesting and reading them.
#include "cache/key.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace laya::cache {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

bool is_tag_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

/// Takes everything up to the next ':' from `text`, or nothing if there is none.
bool take_until_colon(std::string_view& text, std::string_view& part) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  part = text.substr(0, colon);
  text.remove_prefix(colon + 1);
  return true;
}

/// Reads a decimal length as KeyBuilder writes it: no sign, no leading zero.
bool parse_length(std::string_view digits, size_t& length) {
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) return false;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  return error == std::errc{} && end == digits.data() + digits.size();
}

/// Takes one field from `text`.
bool take_field(std::string_view& text, KeyField& field) {
  std::string_view tag, digits;
  size_t length = 0;
  if (!take_until_colon(text, tag) || !take_until_colon(text, digits)) return false;
  if (tag.empty() || !std::all_of(tag.begin(), tag.end(), is_tag_byte)) return false;
  if (!parse_length(digits, length) || text.size() <= length || text[length] != '\n') return false;
  field = {std::string(tag), std::string(text.substr(0, length))};
  text.remove_prefix(length + 1);
  return true;
}

}  // namespace

std::string Digest::hex() const {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text;
}

std::optional<Digest> Digest::from_hex(std::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * digest.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < hex.size(); ++i) {
    const size_t value = std::string_view(kHexDigits).find(hex[i]);
    if (value == std::string_view::npos) return std::nullopt;
    digest.bytes[i / 2] = static_cast<uint8_t>(digest.bytes[i / 2] << 4 | value);
  }
  return digest;
}

Digest digest_of(std::string_view bytes) {
  // Canonical form, so that a database means the same on every machine.
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Digest digest;
  static_assert(sizeof canonical.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), canonical.digest, sizeof canonical.digest);
  return digest;
}

uint64_t checksum_of(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

KeyBuilder& KeyBuilder::field(std::string_view tag, std::string_view value) {
  for (const char c : tag) {
    if (is_tag_byte(c)) {
      text_ += c;
    } else {
      // A tag outside the alphabet is a defect of the caller. Escaped, it cannot pass for another
      // list of fields; parse_key() refuses it.
      text_ += '%';
      text_ += kHexDigits[static_cast<uint8_t>(c) >> 4];
      text_ += kHexDigits[static_cast<uint8_t>(c) & 15];
    }
  }
  text_ += ':';
  text_ += std::to_string(value.size());
  text_ += ':';
  text_ += value;
  text_ += '\n';
  return *this;
}

KeyBuilder& KeyBuilder::field(std::string_view tag, int64_t value) {
  return field(tag, std::string_view(std::to_string(value)));
}

KeyBuilder& KeyBuilder::common_from_here() {
  common_from_ = text_.size();
  return *this;
}

Key KeyBuilder::finish() && {
  const Digest digest = digest_of(text_);
  const size_t common_from = common_from_.value_or(text_.size());
  return Key{digest, std::move(text_), common_from};
}

Result<std::vector<KeyField>> parse_key(std::string_view text) {
  std::vector<KeyField> fields;
  const size_t size = text.size();
  while (!text.empty()) {
    const size_t offset = size - text.size();
    if (!take_field(text, fields.emplace_back())) {
      return fail(ErrorKind::kBadInput,
                  "key text: no `tag:length:value` field at byte " + std::to_string(offset));
    }
  }
  return fields;
}

}  // namespace laya::cache
