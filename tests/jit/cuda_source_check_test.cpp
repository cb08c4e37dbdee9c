#include <doctest/doctest.h>

#include <string>

#include "jit/cuda/source_check.h"

using namespace laya;
using namespace laya::jit;

namespace {

Result<void> check(std::string source, std::vector<Header> headers = {}) {
  CompileRequest request;
  request.name = "t.cu";
  request.source = std::move(source);
  request.headers = std::move(headers);
  return cuda::check_source(request);
}

std::string refusal(std::string source, std::vector<Header> headers = {}) {
  const auto result = check(std::move(source), std::move(headers));
  if (result) return "accepted";
  CHECK(result.error().kind == ErrorKind::kCompileFailed);
  return result.error().message;
}

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("bytes that would cut the source short are refused with their line") {
  CHECK(contains(refusal(std::string("int a;\nint b\0;", 13)), "t.cu:2: a byte of value 0"));
  CHECK(contains(refusal("int a;\n\n// \xff"), "t.cu:3: a byte of value 255"));
  CHECK(contains(refusal("int a;", {{"h.cuh", "\xff"}}), "h.cuh:1"));
  CHECK(check("// caf\xc3\xa9"));
}

TEST_CASE("a source that is too large is refused") {
  const std::string megabyte(1 << 20, ' ');
  CHECK(check(megabyte));
  CHECK(contains(refusal(repeat(megabyte, 4), {{"h.cuh", "int a;"}}), "limit"));
}

TEST_CASE("brackets may be 1000 deep and no deeper") {
  for (const auto& [open, close] : {std::pair{"(", ")"}, {"[", "]"}, {"{", "}"}}) {
    CAPTURE(open);
    CHECK(check(repeat(open, 1000) + repeat(close, 1000)));
    CHECK(contains(refusal("\n" + repeat(open, 1001)), "t.cu:2"));
    CHECK(contains(refusal("", {{"deep.cuh", repeat(open, 1001)}}), "deep.cuh:1"));
  }
  CHECK(check(repeat("f(a[1]{2});", 2000)));
  CHECK(check(repeat(")", 10) + repeat("(", 1000)));
}

TEST_CASE("brackets in comments and literals do not count") {
  const std::string deep = repeat("(", 2000);
  CHECK(check("// " + deep + "\n/* " + deep + " */ int a;"));
  CHECK(check("const char* s = \"" + deep + "\\\"" + deep + "\"; char c = '('; char d = '\\'';"));
  CHECK(check("auto s = R\"x(" + deep + ")\" )x\";"));
  CHECK(check(repeat("int i = 1'000'000; char c = u'(';\n", 2000)));
  // After each of them counting goes on.
  CHECK_FALSE(check("/* */" + deep));
  CHECK_FALSE(check("// \\\n still a comment\n" + deep));
  CHECK_FALSE(check("int i = 1'0;" + deep));
  CHECK_FALSE(check("auto s = R\"x(y)x\";" + deep));
  CHECK_FALSE(check("char c = u'x';" + deep));
  CHECK_FALSE(check("#define A \"unterminated\n" + deep));
}

TEST_CASE("an include cannot leave the headers given") {
  const std::string include = "#include ";
  for (const char* name : {"\"/etc/passwd\"", "</etc/passwd>", "\"../x.h\"", "\"a/../../x.h\""}) {
    CAPTURE(name);
    CHECK(contains(refusal("\n" + include + name), "t.cu:2"));
  }
  CHECK_FALSE(check("  #  include\t\"/x\""));
  CHECK_FALSE(check("/* */ #include \"/x\""));
  CHECK_FALSE(check("#inc\\\nlude \"/x\""));
  CHECK_FALSE(check("%:include \"/x\""));
  CHECK_FALSE(check("#define H \"/x\"\n#include H"));
  CHECK_FALSE(check("int a;", {{"h.cuh", "#include \"/x\"\n"}}));

  CHECK(check("#include \"a.cuh\"\n#include <b/c.cuh>\n#include \"d..cuh\"\n"));
  CHECK(check("#include \"../x.cuh\"\n", {{"../x.cuh", ""}}));
  CHECK(check("// #include \"/x\"\nconst char* s = \"#include </x>\";\nint a = 1 \n"));
}
