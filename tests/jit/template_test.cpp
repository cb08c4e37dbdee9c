#include "jit/template.h"

#include <doctest/doctest.h>

using namespace laya;
using namespace laya::jit;

namespace {

constexpr const char* kText =
    "// out = a * N\n"
    "//! entry  scale\n"
    "//! param  T    word  bf16 fp16 fp32     element type\n"
    "//! param  N    int   8..64 step 8       the factor\n"
    "//! param  ACT  word  none relu          what is applied after it\n"
    "//! arg    a    ptr                      [count] T\n"
    "//! arg    count i32                     may be 0\n"
    "T* use; int n = N * ACT * T_BYTES;\n";

Template scale(Backend backend = Backend::kCuda) {
  auto parsed = parse_template("scale", backend, kText);
  REQUIRE(parsed);
  return *std::move(parsed);
}

KernelSpec spec() {
  return KernelSpec("scale", {Backend::kCuda, "sm_80"})
      .set("T", "bf16")
      .set("N", 16)
      .set("ACT", "relu");
}

std::string parse_error(const std::string& text) {
  const auto parsed = parse_template("broken", Backend::kCuda, text);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().kind == ErrorKind::kBadSpec);
  return parsed.error().message;
}

std::string expand_error(const KernelSpec& wrong) {
  const auto expanded = expand(scale(), wrong);
  REQUIRE_FALSE(expanded);
  CHECK(expanded.error().kind == ErrorKind::kBadSpec);
  return expanded.error().message;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a declaration is read with its comments left out") {
  const Template parsed = scale();
  CHECK(parsed.entry == "scale");
  REQUIRE(parsed.params.size() == 3);
  CHECK(parsed.params[0].words == std::vector<std::string>{"bf16", "fp16", "fp32"});
  CHECK(parsed.params[0].is_dtype());
  CHECK(parsed.params[1].min == 8);
  CHECK(parsed.params[1].max == 64);
  CHECK(parsed.params[1].step == 8);
  CHECK_FALSE(parsed.params[2].is_dtype());
  REQUIRE(parsed.args.size() == 2);
  CHECK(parsed.args[0] == ArgTemplate{"a", ArgKind::kPointer, {}});
  CHECK(parsed.args[1] == ArgTemplate{"count", ArgKind::kI32, {}});
}

TEST_CASE("the fields of a map argument become numbers once the parameters are known") {
  const auto parsed = parse_template("m", Backend::kCuda,
                                     "//! entry m\n//! param T word bf16 fp16\n"
                                     "//! param H int 1..64\n"
                                     "//! arg a map T rows 3*H*64 128 64    [rows, 3*H*64] T\n"
                                     "//! arg w map fp32 H 8 H 8\n//! arg rows i32\n"
                                     "//! arg v map T 64*H 8 64 8 by_thread 32   reordered\nT H\n");
  REQUIRE_MESSAGE(parsed, parsed.error().message);
  const KernelSpec wanted =
      KernelSpec("m", {Backend::kCuda, "sm_90a"}).set("T", "fp16").set("H", 12);
  const auto signature = resolve_signature(*parsed, wanted);
  REQUIRE_MESSAGE(signature, signature.error().message);
  CHECK((*signature)[0].map == TensorMapShape{"fp16", 2, 0, 2304, 128, 64});
  CHECK((*signature)[1].map == TensorMapShape{"fp32", -1, 12, 8, 12, 8});
  CHECK((*signature)[3].map == TensorMapShape{"fp16", -1, 768, 8, 64, 8, 32});
  CHECK(size_of((*signature)[0].kind) == 8);
}

TEST_CASE(
    "a CUDA template may ask for programmatic dependent launch and clusters, and for nothing "
    "else") {
  const auto parse = [](Backend backend, const std::string& line) {
    return parse_template("m", backend, "//! entry m\n" + line);
  };
  CHECK_FALSE(parse(Backend::kCuda, "")->is_dependent);
  CHECK(parse(Backend::kCuda, "//! launch dependent   early\n")->is_dependent);
  for (const auto& [backend, line] :
       {std::pair{Backend::kCuda, "//! launch early\n"}, std::pair{Backend::kCuda, "//! launch\n"},
        std::pair{Backend::kCuda, "//! launch cluster\n"},
        std::pair{Backend::kCpu, "//! launch dependent\n"}}) {
    const auto parsed = parse(backend, line);
    REQUIRE_FALSE(parsed);
    CHECK(contains(parsed.error().message, "line 2: a launch can only be 'dependent'"));
  }
}

TEST_CASE("a cluster of several blocks is an attribute of the entry, a block alone has none") {
  const std::string head =
      "//! entry m\n//! launch cluster C*4\n//! launch dependent\n//! param C int 0..8\n"
      "//! param D int 0..8\n";
  const auto unused = parse_template("m", Backend::kCuda, head + "int x = C + D;\n");
  REQUIRE_FALSE(unused);
  CHECK(contains(unused.error().message, "asks for clusters and never uses LAYA_CLUSTER"));
  const auto source =
      parse_template("m", Backend::kCuda, head + "__global__ void LAYA_CLUSTER m(X<C, D>) {}\n");
  REQUIRE_MESSAGE(source, source.error().message);
  CHECK(source->is_dependent);
  const auto constants_of = [](Template declared, const std::string& cluster) {
    declared.cluster = cluster;
    const KernelSpec spec = KernelSpec("m", {Backend::kCuda, "sm_90a"}).set("C", 2).set("D", 1);
    const auto expanded = expand(declared, spec);
    return expanded ? expanded->constants : expanded.error().message;
  };
  CHECK(contains(constants_of(*source, "C*4"), "#define LAYA_CLUSTER __cluster_dims__(8, 1, 1)\n"));
  CHECK(contains(constants_of(*source, "D"), "#define LAYA_CLUSTER\n"));
  CHECK_FALSE(contains(constants_of(*source, ""), "LAYA_CLUSTER"));
  CHECK(contains(constants_of(*source, "E"), "'E' of 'launch cluster' is no product"));
  CHECK(contains(constants_of(*source, "0*C"), "a cluster of 0 blocks; at least 1 is needed"));
  const auto twice = parse_template("m", Backend::kCuda, head + "//! launch cluster D\n");
  REQUIRE_FALSE(twice);
  CHECK(contains(twice.error().message, "line 6: a second cluster"));
}

TEST_CASE("a map argument that makes no sense is refused") {
  const auto resolve_error = [](const std::string& fields) {
    const auto parsed =
        parse_template("m", Backend::kCuda,
                       "//! entry m\n//! param N int 1..64\n//! arg a map " + fields + "\nN\n");
    if (!parsed) return parsed.error().message;
    const auto signature =
        resolve_signature(*parsed, KernelSpec("m", {Backend::kCuda, "sm_90a"}).set("N", 8));
    REQUIRE_FALSE(signature);
    CHECK(signature.error().kind == ErrorKind::kBadSpec);
    return signature.error().message;
  };
  CHECK(contains(resolve_error("N N N N N"), "'N' of argument 'a' is no dtype"));
  CHECK(contains(resolve_error("bf16 rows N N N"), "'rows' of argument 'a' is no product"));
  CHECK(contains(resolve_error("bf16 N 2**N N N"), "is no product"));
  CHECK(contains(resolve_error("bf16 N N N"), "a map needs"));
  CHECK(contains(resolve_error("bf16 N N N N by_row 8"), "a map can have 'by_thread ROWS' only"));
  CHECK(contains(resolve_error("bf16 N N N N by_thread"), "a map can have 'by_thread ROWS' only"));
  CHECK(contains(resolve_error("bf16 N N N N by_thread 4"), "'4' of argument 'a' is no multiple"));
  CHECK(contains(resolve_error("bf16 N N N N by_thread 16"), "'16' of argument 'a' does not"));
  CHECK(contains(resolve_error("bf16 r N N N by_thread 8\n//! arg r i32"),
                 "'8' of argument 'a' needs a number of rows"));
  const auto on_cpu =
      parse_template("m", Backend::kCpu, "//! entry m\n//! arg a map bf16 1 1 1 1\n");
  CHECK(contains(on_cpu.error().message, "only CUDA"));
}

TEST_CASE("expanding puts the parameters in front as constants") {
  const auto text = expand(scale(), spec());
  REQUIRE(text);
  CHECK(text->constants ==
        "#include \"types.cuh\"\n"
        "using T = bf16;\n"
        "enum : int { T_BYTES = 2 };\n"
        "enum : int { N = 16 };\n"
        "enum : int { ACT_none = 0 };\n"
        "enum : int { ACT_relu = 1 };\n"
        "enum : int { ACT = ACT_relu };\n");
  CHECK(text->text == std::string("#line 1 \"scale.cu\"\n") + kText);
  CHECK(text->whole() == text->constants + text->text);
}

TEST_CASE("a CPU template gets the function that unpacks its arguments") {
  const auto text = expand(scale(Backend::kCpu), spec());
  REQUIRE(text);
  CHECK(text->constants.starts_with("#include \"types.h\"\n"));
  CHECK(contains(text->text, "laya_launch(void* const* args, const Block* block)"));
  CHECK(contains(text->text,
                 "scale(*static_cast<const LayaAnyPointer*>(args[0]), "
                 "*static_cast<const int*>(args[1]), *block);"));
}

TEST_CASE("numbers beyond 32 bits become long long") {
  const auto parsed = parse_template("big", Backend::kCuda,
                                     "//! entry big\n//! param N int -9000000000..9000000000\nN\n");
  REQUIRE(parsed);
  const KernelSpec wanted =
      KernelSpec("big", {Backend::kCuda, "sm_80"}).set("N", int64_t{-5000000000});
  CHECK(contains(expand(*parsed, wanted)->constants, "enum : long long { N = -5000000000LL };"));
}

TEST_CASE("a parameter that is missing, unknown or illegal is named with what is allowed") {
  CHECK(contains(expand_error(KernelSpec("scale", {Backend::kCuda, "sm_80"}).set("T", "bf16")),
                 "parameter N is missing; allowed: 8..64 in steps of 8"));
  CHECK(contains(expand_error(spec().set("M", 1)), "no parameter M"));
  CHECK(contains(expand_error(spec().set("N", 12)), "parameter N has no legal value"));
  CHECK(contains(expand_error(spec().set("N", 72)), "parameter N has no legal value"));
  CHECK(contains(expand_error(spec().set("N", "16x")), "parameter N has no legal value"));
  CHECK(contains(expand_error(spec().set("ACT", "gelu")), "allowed: none, relu"));
  CHECK(contains(expand_error(spec().set("ACT", 1)), "allowed: none, relu"));
}

TEST_CASE("a wrong declaration is refused with its line") {
  CHECK(contains(parse_error("int x;\n"), "no '//! entry' line"));
  CHECK(contains(parse_error("//! entry a\n//! entry b\n"), "line 2: a second entry"));
  CHECK(contains(parse_error("//! entry 9a\n"), "line 1"));
  CHECK(contains(parse_error("//! entry a\n//! size N\n"), "line 2: 'size' is none of"));
  CHECK(contains(parse_error("//! entry a\n//! param N int 5\nN"), "needs a range"));
  CHECK(contains(parse_error("//! entry a\n//! param N int 5..1\nN"), "is no range"));
  CHECK(contains(parse_error("//! entry a\n//! param N int 1..9 step 0\nN"), "step"));
  CHECK(contains(parse_error("//! entry a\n//! param N float 1..9\nN"), "neither int nor word"));
  CHECK(contains(parse_error("//! entry a\n//! param N word a-b\nN"), "no identifier"));
  CHECK(contains(parse_error("//! entry a\n//! arg x int\n"), "none of ptr, i32"));
  CHECK(contains(parse_error("//! entry a\n//! param N int 1..2\n//! param N int 1..2\nN"),
                 "declared twice"));
}

TEST_CASE("a parameter that the text never uses is refused") {
  CHECK(contains(parse_error("//! entry a\n//! param N int 1..2\nint NN = 3;\n"), "never uses"));
  CHECK(parse_template("ok", Backend::kCuda, "//! entry a\n//! param N int 1..2\nint x = N;\n"));
}
