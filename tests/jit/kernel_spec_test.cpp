#include "jit/kernel_spec.h"

#include <doctest/doctest.h>

using namespace laya::jit;

namespace {

Target sm90a() {
  return {Backend::kCuda, "sm_90a"};
}

KernelSpec gemm() {
  return KernelSpec("gemm", sm90a()).set("N", 768).set("ACT", "gelu").set("K", 64);
}

}  // namespace

TEST_CASE("the order in which parameters are set does not matter") {
  const KernelSpec other =
      KernelSpec("gemm", sm90a()).set("K", 64).set("N", 768).set("ACT", "gelu");
  CHECK(gemm() == other);
  CHECK(gemm().hash() == other.hash());
}

TEST_CASE("each part of a spec makes another spec") {
  CHECK(gemm() != gemm().set("N", 769));
  CHECK(gemm() != gemm().set("ACT", "relu"));
  CHECK(gemm() != gemm().set("X", 1));
  CHECK(gemm().set("X", 1) != gemm().set("X", "1"));
  CHECK(gemm() != KernelSpec("gemm2", sm90a()).set("N", 768).set("ACT", "gelu").set("K", 64));
  const Target sm90{Backend::kCuda, "sm_90"};
  CHECK(gemm() != KernelSpec("gemm", sm90).set("N", 768).set("ACT", "gelu").set("K", 64));
}

TEST_CASE("setting a parameter again replaces it") {
  KernelSpec spec = gemm();
  spec.set("N", 8).set("N", 768);
  CHECK(spec == gemm());
  CHECK(spec.params().size() == 3);
}

TEST_CASE("a spec survives the way through text") {
  CHECK(gemm().to_string() == "gemm{ACT=gelu,K=64,N=768}@sm_90a");
  for (const KernelSpec& spec : {gemm(), KernelSpec("copy", sm90a()), gemm().set("OFFSET", -5)}) {
    const auto parsed = parse_kernel_spec(spec.to_string());
    REQUIRE(parsed);
    CHECK(*parsed == spec);
  }
}

TEST_CASE("text that is no spec is refused with a reason") {
  for (const char* text : {"", "gemm", "gemm{N=1}", "{N=1}@sm_80", "gemm{N}@sm_80",
                           "gemm{=1}@sm_80", "gemm{N=}@sm_80", "gemm{N=1}@nonsense"}) {
    CAPTURE(text);
    const auto parsed = parse_kernel_spec(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().kind == laya::ErrorKind::kBadInput);
    CHECK_FALSE(parsed.error().message.empty());
  }
}
