// Packing, unpacking and checking of records.
#include "cache/codec.h"

#define XXH_STATIC_LINKING_ONLY  // For the hash state as a plain variable.
#include <xxhash.h>
#include <zstd.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>

namespace laya::cache {
namespace {

// Every hit unpacks a key text, some 20 KB of source, so it is packed for that: level -10 unpacks
// it in 9 us where level -5 takes 11 us and level 3 takes 17 us, for 14 KB on disk instead of 12
// or 7.
constexpr int kKeyLevel = -10;

// Reading an artifact takes less than unpacking it, so only those are packed whose size on disk
// matters more than some microseconds.
constexpr int kArtifactLevel = 3;
constexpr size_t kPackArtifactsFrom = 256 << 10;

// Above SQLite's own limit for a value. A size beyond it is no size of ours.
constexpr int64_t kMaxPlainBytes = int64_t{1} << 30;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

/// Packs `plain`, unless that saves less than a quarter.
std::string pack(std::string_view plain, int level) {
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  if (!context) return std::string(plain);
  std::string packed(plain.size() - plain.size() / 4, '\0');
  const size_t size = ZSTD_compressCCtx(context.get(), packed.data(), packed.size(), plain.data(),
                                        plain.size(), level);
  if (ZSTD_isError(size) || size >= plain.size()) return std::string(plain);
  packed.resize(size);
  return packed;
}

/// Unpacks into `plain`, whose size is the expected one.
bool unpack(std::string_view packed, std::string& plain) {
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  if (!context) return false;
  const size_t size =
      ZSTD_decompressDCtx(context.get(), plain.data(), plain.size(), packed.data(), packed.size());
  return !ZSTD_isError(size) && size == plain.size();
}

bool is_packed(std::string_view stored, int64_t plain_bytes) {
  return static_cast<int64_t>(stored.size()) != plain_bytes;
}

bool has_sane_sizes(const StoredRecord& stored) {
  return stored.key_bytes >= 0 && stored.key_bytes <= kMaxPlainBytes &&
         stored.artifact_bytes >= 0 && stored.artifact_bytes <= kMaxPlainBytes;
}

class Checksum {
 public:
  Checksum() { XXH3_128bits_reset(&state_); }

  void add(std::string_view bytes) { XXH3_128bits_update(&state_, bytes.data(), bytes.size()); }

  void add(const Digest& digest) {
    XXH3_128bits_update(&state_, digest.bytes.data(), digest.bytes.size());
  }

  void add_number(int64_t number) {
    std::array<uint8_t, 8> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(static_cast<uint64_t>(number) >> (56 - 8 * i));
    }
    XXH3_128bits_update(&state_, bytes.data(), bytes.size());
  }

  void add_size(std::string_view bytes) { add_number(static_cast<int64_t>(bytes.size())); }

  Digest finish() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_));
    Digest digest;
    std::memcpy(digest.bytes.data(), canonical.digest, digest.bytes.size());
    return digest;
  }

 private:
  XXH3_state_t state_;
};

}  // namespace

StoredRecord encode(const Key& key, const Record& record) {
  StoredRecord stored;
  stored.digest = key.digest;
  stored.producer = record.producer;
  stored.metadata = record.metadata;
  stored.key_text = pack(key.text, kKeyLevel);
  stored.artifact = record.artifact.size() >= kPackArtifactsFrom
                        ? pack(record.artifact, kArtifactLevel)
                        : record.artifact;
  stored.key_bytes = static_cast<int64_t>(key.text.size());
  stored.artifact_bytes = static_cast<int64_t>(record.artifact.size());
  stored.checksum = checksum(stored);
  return stored;
}

Digest checksum(const StoredRecord& stored) {
  Checksum sum;
  sum.add(stored.digest);
  sum.add_size(stored.producer);
  sum.add_size(stored.metadata);
  sum.add_size(stored.key_text);
  sum.add_number(stored.key_bytes);
  sum.add_size(stored.artifact);
  sum.add_number(stored.artifact_bytes);
  sum.add(stored.producer);
  sum.add(stored.metadata);
  sum.add(stored.key_text);
  sum.add(stored.artifact);
  return sum.finish();
}

int64_t stored_bytes(const StoredRecord& stored) {
  return kRowOverhead + static_cast<int64_t>(stored.producer.size() + stored.metadata.size() +
                                             stored.key_text.size() + stored.artifact.size());
}

bool is_intact(const StoredRecord& stored) {
  return has_sane_sizes(stored) && checksum(stored) == stored.checksum;
}

bool is_sound(const StoredRecord& stored) {
  if (!is_intact(stored)) return false;
  const auto text = key_text_of(stored);
  return text && digest_of(*text) == stored.digest && decode(stored);
}

std::optional<std::string> key_text_of(const StoredRecord& stored) {
  if (!is_packed(stored.key_text, stored.key_bytes)) return stored.key_text;
  std::string text(static_cast<size_t>(stored.key_bytes), '\0');
  if (!unpack(stored.key_text, text)) return std::nullopt;
  return text;
}

bool has_key_text(const StoredRecord& stored, std::string_view text) {
  if (stored.key_bytes != static_cast<int64_t>(text.size())) return false;
  if (!is_packed(stored.key_text, stored.key_bytes)) return stored.key_text == text;
  thread_local std::string plain;  // Keeps its memory: key texts are of similar size.
  plain.resize(text.size());
  return unpack(stored.key_text, plain) && plain == text;
}

std::optional<Record> decode(StoredRecord stored) {
  Record record{std::move(stored.producer), {}, std::move(stored.metadata)};
  if (!is_packed(stored.artifact, stored.artifact_bytes)) {
    record.artifact = std::move(stored.artifact);
    return record;
  }
  record.artifact.resize(static_cast<size_t>(stored.artifact_bytes));
  if (!unpack(stored.artifact, record.artifact)) return std::nullopt;
  return record;
}

}  // namespace laya::cache
