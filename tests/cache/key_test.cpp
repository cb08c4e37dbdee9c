// Keys: the exact text, the digest, and that no two lists of fields share a text.
#include "cache/key.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace laya::cache {
namespace {

Key key_from(const std::vector<KeyField>& fields) {
  KeyBuilder builder;
  for (const KeyField& field : fields) builder.field(field.tag, field.value);
  return std::move(builder).finish();
}

TEST_CASE("the text of a key is golden") {
  KeyBuilder builder;
  builder.field("version", 1).field("source", "void f() {}\n").field("empty", "");
  builder.field("offset", -12);
  const Key key = std::move(builder).finish();
  CHECK(key.text == "version:1:1\nsource:12:void f() {}\n\nempty:0:\noffset:3:-12\n");
  CHECK(key.digest.hex() == "540dc610b4da3a57ca03e3338e513aa8");
}

TEST_CASE("the digest is XXH3-128 in canonical form") {
  // Values published with xxHash, seed 0.
  CHECK(digest_of("").hex() == "99aa06d3014798d86001c324468d497f");
  CHECK(checksum_of("") == 0x2d06800538d394c2);
}

TEST_CASE("a key text can be read back, whatever the values hold") {
  const std::vector<KeyField> fields = {{"a", ""},
                                        {"a", "same tag again"},
                                        {"b.c_d-e9", std::string("\0:\n1:2:x\n", 9)},
                                        {"utf", "日本 'quote' \"%?#"}};
  const auto parsed = parse_key(key_from(fields).text);
  REQUIRE(parsed);
  CHECK(*parsed == fields);
  CHECK(parse_key("")->empty());
}

TEST_CASE("every single change of a field changes text and digest") {
  const std::vector<KeyField> base = {{"source", "abc"}, {"option", "-O3"}, {"target", "sm_90a"}};
  const std::vector<std::vector<KeyField>> changed = {
      {{"source", "abd"}, {"option", "-O3"}, {"target", "sm_90a"}},
      {{"source", "abc"}, {"option", "-O2"}, {"target", "sm_90a"}},
      {{"source", "abc"}, {"option", "-O3"}, {"target", "sm_90"}},
      {{"sourcf", "abc"}, {"option", "-O3"}, {"target", "sm_90a"}},
      {{"option", "-O3"}, {"source", "abc"}, {"target", "sm_90a"}},
      {{"source", "abc"}, {"option", "-O3"}},
      {{"source", "abc"}, {"option", ""}, {"option", "-O3"}, {"target", "sm_90a"}},
      {{"source", "abc\noption:3:-O3"}, {"target", "sm_90a"}},
  };
  for (const auto& fields : changed) {
    CHECK(key_from(fields).text != key_from(base).text);
    CHECK(key_from(fields).digest != key_from(base).digest);
  }
}

TEST_CASE("a tag outside the alphabet cannot pass for other fields") {
  const Key forged = key_from({{"a:1:x\nb", "y"}});
  CHECK(forged.text != key_from({{"a", "x"}, {"b", "y"}}).text);
  CHECK_FALSE(parse_key(forged.text));
}

TEST_CASE("a text that KeyBuilder does not write is refused") {
  for (const char* text :
       {"a", "a:", "a:1", "a:1:", "a:1:x", "a:1:xy\n", "a:2:x\n", "a:-1:\n", "a:01:x\n", "a:+1:x\n",
        ":1:x\n", "A:1:x\n", "a:99999999999999999999:x\n", "a:18446744073709551615:x\n",
        "a:1:x\nb"}) {
    CAPTURE(text);
    const auto parsed = parse_key(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().kind == ErrorKind::kBadInput);
  }
  CHECK(parse_key("a:1:x\nb").error().message.find("byte 6") != std::string::npos);
}

}  // namespace
}  // namespace laya::cache
