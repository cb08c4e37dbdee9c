// What is inside the database: records with a checksum over everything, and the texts that keys
// have in common.
// Internal to cache/. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cache/key.h"
#include "cache/store.h"

namespace laya::cache {

/// A record as it is stored. The artifact is packed with zstd exactly if it is shorter than its
/// plain size.
struct StoredRecord {
  Digest digest;
  Digest common;  ///< digest_of(Key::common()): which StoredText completes the key
  std::string producer;
  std::string metadata;
  std::string own_text;        ///< Key::own()
  std::string artifact;        ///< maybe packed
  int64_t artifact_bytes = 0;  ///< plain size of the artifact
  Digest checksum;             ///< checksum(*this)
};

/// The end of the keys of one or more records. An empty one is not stored.
struct StoredText {
  Digest digest;      ///< digest_of() the plain text
  int64_t bytes = 0;  ///< its plain size
  std::string text;   ///< packed with zstd exactly if it is shorter than `bytes`
};

StoredRecord encode(const Key& key, const Record& record);
StoredText encode_text(std::string_view common);

/// XXH3-128 in canonical form over all other members of `stored`: the two digests, then the five
/// sizes as 64-bit big-endian numbers (producer, metadata, own text, stored and plain artifact),
/// then the bytes of producer, metadata, own text and artifact.
Digest checksum(const StoredRecord& stored);

/// What the row of a record takes beside its texts, in round figures: ids, sizes, digests and index
/// entries.
inline constexpr int64_t kRowOverhead = 200;

/// What the record counts for against the size cap: kRowOverhead and the sizes of its texts.
int64_t stored_bytes(const StoredRecord& stored);

/// Whether `stored` is undamaged. All that follows is only called on undamaged records.
bool is_intact(const StoredRecord& stored);

/// Whether `stored` is what encode() would have made of some record and a key that ends with
/// `common`: intact, it unpacks, and its digest is that of its key text. Reads all of it.
bool is_sound(const StoredRecord& stored, std::string_view common);

/// Whether the key text of `stored`, which `common` completes, is exactly `text`.
bool has_key_text(const StoredRecord& stored, std::string_view common, std::string_view text);

/// The plain text; nothing if it is damaged.
std::optional<std::string> decode_text(const StoredText& stored);

/// The record as it was given to encode(); nothing if it does not unpack.
std::optional<Record> decode(StoredRecord stored);

}  // namespace laya::cache
