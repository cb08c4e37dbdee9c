// A key: an ordered list of (tag, value) fields, written down in full and digested.
// The cache does not know what the fields mean.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/result.h"

namespace laya::cache {

/// XXH3-128 in canonical (big-endian) byte order. Finds a row; never taken for identity.
struct Digest {
  std::array<uint8_t, 16> bytes{};

  /// 32 lower-case hexadecimal digits.
  std::string hex() const;
  /// The inverse of hex(); nothing if `hex` is not 32 such digits.
  static std::optional<Digest> from_hex(std::string_view hex);
  auto operator<=>(const Digest&) const = default;
};

Digest digest_of(std::string_view bytes);

/// XXH3-64, for checksums.
uint64_t checksum_of(std::string_view bytes);

/// The identity of an artifact. `text` is compared in full on every disk hit.
struct Key {
  Digest digest;     ///< digest_of(text)
  std::string text;  ///< the serialised fields, see KeyBuilder
  /// Where the part of `text` begins that other keys are likely to end with too. It is stored once
  /// for all of them. The size of `text`: there is none.
  size_t common_from = 0;

  std::string_view own() const { return std::string_view(text).substr(0, common_from); }
  std::string_view common() const { return std::string_view(text).substr(common_from); }
};

struct KeyField {
  std::string tag;
  std::string value;
  bool operator==(const KeyField&) const = default;
};

/// Serialises fields as `tag:length:value\n`, so that no two different lists share a text: values
/// are length-prefixed bytes and may hold anything; tags are `[a-z0-9._-]+`.
/// Fields are kept in the order of the calls.
class KeyBuilder {
 public:
  KeyBuilder& field(std::string_view tag, std::string_view value);
  KeyBuilder& field(std::string_view tag, int64_t value);
  /// What follows is likely to be the same in many keys: source texts, say. The key's text is the
  /// same with and without this call.
  KeyBuilder& common_from_here();
  Key finish() &&;

 private:
  std::string text_;
  std::optional<size_t> common_from_;
};

/// The inverse of KeyBuilder. kBadInput if `text` is not what KeyBuilder writes.
Result<std::vector<KeyField>> parse_key(std::string_view text);

}  // namespace laya::cache
