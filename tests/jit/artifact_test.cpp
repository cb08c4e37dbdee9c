#include "jit/artifact.h"

#include <doctest/doctest.h>

#include <set>

#include "tests/cache/fault_table.h"

using namespace laya;
using namespace laya::jit;

namespace {

KernelSpec spec(const char* target = "sm_90a") {
  return KernelSpec("gemm", {Backend::kCuda, target}).set("N", 8);
}

ArtifactInputs inputs() {
  return {
      {"int N = 8;\n", "source text"}, {{"a.h", "int a;"}, {"b.h", ""}}, {"-arch=sm_90a", "-O3"}};
}

}  // namespace

TEST_CASE("the key is written down field by field and does not change between versions") {
  const cache::Key key = artifact_key(spec(), inputs());
  CHECK(key.text ==
        "laya-key:1:2\nbackend:4:cuda\ntarget:6:sm_90a\nkernel:16:gemm{N=8}@sm_90a\n"
        "option:12:-arch=sm_90a\noption:3:-O3\nconstants:11:int N = 8;\n\n"
        "header:3:a.h\nheader-text:6:int a;\n"
        "header:3:b.h\nheader-text:0:\nsource:11:source text\n");
  CHECK(key.digest == cache::digest_of(key.text));
  CHECK(key.common().starts_with("header:3:a.h"));
}

TEST_CASE("kernels of one template and target have their sources in common") {
  ArtifactInputs other = inputs();
  other.source.constants = "int N = 9;\n";
  const cache::Key a = artifact_key(spec(), inputs());
  const cache::Key b = artifact_key(spec().set("N", 9), other);
  CHECK(a.common() == b.common());
  CHECK(a.own() != b.own());
}

TEST_CASE("each input alone makes another key") {
  std::set<std::string> keys;
  const auto add = [&](const KernelSpec& s, const ArtifactInputs& i) {
    keys.insert(artifact_key(s, i).text);
  };
  add(spec(), inputs());
  add(spec("sm_90"), inputs());
  add(spec().set("N", 9), inputs());
  ArtifactInputs changed = inputs();
  changed.source.constants += " ";
  add(spec(), changed);
  changed = inputs();
  changed.source.text += " ";
  add(spec(), changed);
  changed = inputs();
  changed.headers[0].text = "int b;";
  add(spec(), changed);
  changed = inputs();
  changed.headers[0].name = "c.h";
  add(spec(), changed);
  changed = inputs();
  changed.headers.pop_back();
  add(spec(), changed);
  changed = inputs();
  std::swap(changed.options[0], changed.options[1]);
  add(spec(), changed);
  changed = inputs();
  changed.options = {"-arch=sm_90a-O3"};
  add(spec(), changed);
  CHECK(keys.size() == 10);
  cache::test::fault_row("E", "one input of the key changed").times += 9;
}

TEST_CASE("an artifact survives the way through a record") {
  Artifact artifact{std::string("\0\xff code", 7), {168, 1024, 16, 400, 256}, 0.25};
  const cache::Record record = to_record(spec(), artifact, "compiler 1");
  CHECK(record.producer == "compiler 1");
  const auto back = from_record(record);
  REQUIRE(back);
  CHECK(back->object == artifact.object);
  CHECK(back->attributes.registers == 168);
  CHECK(back->attributes.static_shared_bytes == 1024);
  CHECK(back->attributes.local_bytes == 16);
  CHECK(back->attributes.constant_bytes == 400);
  CHECK(back->attributes.max_threads == 256);
  CHECK(back->compile_seconds == 0.25);
}

TEST_CASE("metadata that makes no sense is refused") {
  for (const char* metadata : {"", "{", "[]", "{}", "{\"registers\":\"many\"}"}) {
    CAPTURE(metadata);
    CHECK_FALSE(from_record({"compiler", "object", metadata}));
  }
}
