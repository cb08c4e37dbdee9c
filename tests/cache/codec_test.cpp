// Records as they lie in the database: round trips, and that the checksum sees every change.
#include "cache/codec.h"

#include <functional>

#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::bytes_of;
using test::key_of;

TEST_CASE("a record comes back as it was, packed or not") {
  const std::string repetitive(1 << 20, 'x');
  for (const std::string& artifact :
       {std::string(), std::string("x"), bytes_of(50000, 1), bytes_of(1 << 20, 2), repetitive}) {
    CAPTURE(artifact.size());
    const Record record{"maker", artifact, "meta"};
    const Key key = key_of("k");
    const StoredRecord stored = encode(key, record);
    REQUIRE(is_intact(stored));
    CHECK(is_sound(stored, key.common()));
    CHECK(has_key_text(stored, key.common(), key.text));
    const auto decoded = decode(stored);
    REQUIRE(decoded);
    CHECK(test::same(*decoded, record));
  }
}

TEST_CASE("texts are packed where it pays") {
  const Key key = key_of("source");
  CHECK(encode_text(key.common()).text.size() < key.common().size() / 4);
  CHECK(encode_text("short").text == "short");
  CHECK(encode(key, {"m", std::string(1 << 20, 'x'), ""}).artifact.size() < (1 << 18));
  // Does not shrink; small enough that reading beats unpacking.
  CHECK(encode(key, {"m", bytes_of(1 << 20, 1), ""}).artifact.size() == 1 << 20);
  CHECK(encode(key, {"m", std::string(50000, 'x'), ""}).artifact.size() == 50000);
}

TEST_CASE("the checksum is golden") {
  StoredRecord record;
  record.digest = digest_of("key");
  record.common = digest_of("common");
  record.producer = "maker";
  record.metadata = "meta";
  record.own_text = "key";
  record.artifact = "artifact";
  record.artifact_bytes = 8;
  CHECK(checksum(record).hex() == "05d9ea2234b63537175e89e039af49d4");
  // By the definition in codec.h, made independently.
  std::string bytes(reinterpret_cast<const char*>(record.digest.bytes.data()), 16);
  bytes.append(reinterpret_cast<const char*>(record.common.bytes.data()), 16);
  for (const char* size : {"\5", "\4", "\3", "\10", "\10"}) {
    bytes += std::string(7, '\0') + size;
  }
  CHECK(checksum(record) == digest_of(bytes + "maker" + "meta" + "key" + "artifact"));
}

TEST_CASE("the checksum sees every change, also of bytes that move between members") {
  const StoredRecord good = encode(key_of("k"), test::record_of(1));
  REQUIRE(is_intact(good));
  const std::vector<std::function<void(StoredRecord&)>> changes = {
      [](StoredRecord& r) { r.digest.bytes[15] ^= 1; },
      [](StoredRecord& r) { r.producer[0] ^= 1; },
      [](StoredRecord& r) { r.metadata += "x"; },
      [](StoredRecord& r) { r.common.bytes[0] ^= 1; },
      [](StoredRecord& r) { r.own_text.back() ^= 0x40; },
      [](StoredRecord& r) { r.artifact[2500] ^= 0x20; },
      [](StoredRecord& r) { r.artifact.pop_back(); },
      [](StoredRecord& r) { r.artifact_bytes = -1; },
      [](StoredRecord& r) { r.artifact_bytes = int64_t{1} << 60; },
      [](StoredRecord& r) { r.checksum.bytes[0] ^= 0x80; },
      [](StoredRecord& r) {
        r.metadata.insert(0, 1, r.producer.back());
        r.producer.pop_back();
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    StoredRecord changed = good;
    changes[i](changed);
    CHECK_FALSE(is_intact(changed));
  }
}

TEST_CASE("an intact record whose artifact does not unpack is refused") {
  StoredRecord record = encode(key_of("k"), {"m", std::string(1 << 20, 'x'), ""});
  const std::string artifact = record.artifact;
  record.artifact = "no zstd frame";
  CHECK_FALSE(decode(record));
  record.artifact = artifact;
  record.artifact_bytes -= 1;
  CHECK_FALSE(decode(record));
}

TEST_CASE("a common text comes back as it was, and a damaged one never") {
  for (const std::string& plain : {std::string("x"), std::string(50'000, 'x'), bytes_of(9000, 1)}) {
    CAPTURE(plain.size());
    const StoredText good = encode_text(plain);
    CHECK(decode_text(good) == plain);
    const std::vector<std::function<void(StoredText&)>> changes = {
        [](StoredText& t) { t.digest.bytes[7] ^= 4; },
        [](StoredText& t) { t.text.back() ^= 1; },
        [](StoredText& t) { t.text.front() ^= 1; },
        [](StoredText& t) { t.text.clear(); },
        [](StoredText& t) { ++t.bytes; },
        [](StoredText& t) { t.bytes = -1; },
        [](StoredText& t) { t.bytes = int64_t{1} << 29; },
        [](StoredText& t) { t.bytes = int64_t{1} << 60; },
    };
    for (size_t i = 0; i < changes.size(); ++i) {
      CAPTURE(i);
      StoredText changed = good;
      changes[i](changed);
      CHECK_FALSE(decode_text(changed));
    }
  }
}

TEST_CASE("another key text is told apart") {
  const Key key = key_of("k");
  const StoredRecord record = encode(key, test::record_of(1));
  std::string text = key.text;
  CHECK(has_key_text(record, key.common(), text));
  CHECK_FALSE(has_key_text(record, "", text));
  CHECK_FALSE(has_key_text(record, key.common(), ""));
  CHECK_FALSE(has_key_text(record, key.common(), text + "x"));
  text.back() = ' ';
  CHECK_FALSE(has_key_text(record, key.common(), text));
  text = key.text;
  text.front() = ' ';
  CHECK_FALSE(has_key_text(record, key.common(), text));
}

}  // namespace
}  // namespace laya::cache
