// What a record looks like inside the database: packed texts and a checksum over everything.
// Internal to cache/. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cache/key.h"
#include "cache/store.h"

namespace laya::cache {

/// A record as it is stored. A text is packed with zstd exactly if it is shorter than its plain
/// size.
struct StoredRecord {
  Digest digest;
  std::string producer;
  std::string metadata;
  std::string key_text;        ///< maybe packed
  std::string artifact;        ///< maybe packed
  int64_t key_bytes = 0;       ///< plain size of the key text
  int64_t artifact_bytes = 0;  ///< plain size of the artifact
  Digest checksum;             ///< checksum(*this)
};

StoredRecord encode(const Key& key, const Record& record);

/// XXH3-128 in canonical form over all other members of `stored`: the digest, then the six sizes as
/// 64-bit big-endian numbers (producer, metadata, stored and plain key text, stored and plain
/// artifact), then the bytes of producer, metadata, key text and artifact.
Digest checksum(const StoredRecord& stored);

/// What a row takes beside its texts: ids, sizes, digests and three index entries.
inline constexpr int64_t kRowOverhead = 160;

/// What the record counts for against the size cap: kRowOverhead and the sizes of its texts.
int64_t stored_bytes(const StoredRecord& stored);

/// Whether `stored` is undamaged. All that follows is only called on undamaged records.
bool is_intact(const StoredRecord& stored);

/// Whether `stored` is what encode() would have made of some key and record: intact, it unpacks,
/// and its digest is that of its key text. Reads all of it.
bool is_sound(const StoredRecord& stored);

/// The plain key text; nothing if it does not unpack, which also counts as damage.
std::optional<std::string> key_text_of(const StoredRecord& stored);

/// Whether `stored` holds exactly this key text.
bool has_key_text(const StoredRecord& stored, std::string_view text);

/// The record as it was given to encode(); nothing if it does not unpack.
std::optional<Record> decode(StoredRecord stored);

}  // namespace laya::cache
