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

// Reading an artifact takes less than unpacking it, so only those are packed whose size on disk
// matters more than some microseconds. Of the common texts, a process unpacks each once.
constexpr int kLevel = 3;
constexpr size_t kPackArtifactsFrom = 256 << 10;

// Above SQLite's own limit for a value. A size beyond it is no size of ours.
constexpr int64_t kMaxPlainBytes = int64_t{1} << 30;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

/// Packs `plain`, unless that saves less than a quarter.
std::string pack(std::string_view plain) {
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  if (!context) return std::string(plain);
  std::string packed(plain.size() - plain.size() / 4, '\0');
  const size_t size = ZSTD_compressCCtx(context.get(), packed.data(), packed.size(), plain.data(),
                                        plain.size(), kLevel);
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

bool is_sane_size(int64_t bytes) {
  return bytes >= 0 && bytes <= kMaxPlainBytes;
}

/// What is plain or packed in `stored`; nothing if it does not unpack.
std::optional<std::string> plain_of(std::string stored, int64_t plain_bytes) {
  if (!is_packed(stored, plain_bytes)) return stored;
  // Of a common text the size may be damaged: no memory is taken for one that cannot be right.
  const auto size = ZSTD_getFrameContentSize(stored.data(), stored.size());
  if (size != static_cast<unsigned long long>(plain_bytes)) return std::nullopt;
  std::string plain(static_cast<size_t>(plain_bytes), '\0');
  if (!unpack(stored, plain)) return std::nullopt;
  return plain;
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
  stored.common = digest_of(key.common());
  stored.producer = record.producer;
  stored.metadata = record.metadata;
  stored.own_text = key.own();
  const bool large = record.artifact.size() >= kPackArtifactsFrom;
  stored.artifact = large ? pack(record.artifact) : record.artifact;
  stored.artifact_bytes = static_cast<int64_t>(record.artifact.size());
  stored.checksum = checksum(stored);
  return stored;
}

StoredText encode_text(std::string_view common) {
  return {digest_of(common), static_cast<int64_t>(common.size()), pack(common)};
}

Digest checksum(const StoredRecord& stored) {
  Checksum sum;
  sum.add(stored.digest);
  sum.add(stored.common);
  sum.add_size(stored.producer);
  sum.add_size(stored.metadata);
  sum.add_size(stored.own_text);
  sum.add_size(stored.artifact);
  sum.add_number(stored.artifact_bytes);
  sum.add(stored.producer);
  sum.add(stored.metadata);
  sum.add(stored.own_text);
  sum.add(stored.artifact);
  return sum.finish();
}

int64_t stored_bytes(const StoredRecord& stored) {
  return kRowOverhead + static_cast<int64_t>(stored.producer.size() + stored.metadata.size() +
                                             stored.own_text.size() + stored.artifact.size());
}

bool is_intact(const StoredRecord& stored) {
  return is_sane_size(stored.artifact_bytes) && checksum(stored) == stored.checksum;
}

bool is_sound(const StoredRecord& stored, std::string_view common) {
  return is_intact(stored) && digest_of(stored.own_text + std::string(common)) == stored.digest &&
         decode(stored);
}

bool has_key_text(const StoredRecord& stored, std::string_view common, std::string_view text) {
  return text.size() == stored.own_text.size() + common.size() &&
         text.starts_with(stored.own_text) && text.ends_with(common);
}

std::optional<Record> decode(StoredRecord stored) {
  auto artifact = plain_of(std::move(stored.artifact), stored.artifact_bytes);
  if (!artifact) return std::nullopt;
  return Record{std::move(stored.producer), *std::move(artifact), std::move(stored.metadata)};
}

std::optional<std::string> decode_text(const StoredText& stored) {
  if (!is_sane_size(stored.bytes)) return std::nullopt;
  auto plain = plain_of(stored.text, stored.bytes);
  if (!plain || digest_of(*plain) != stored.digest) return std::nullopt;
  return plain;
}

}  // namespace laya::cache
