#include "jit/target.h"

#include <doctest/doctest.h>

using namespace laya::jit;

TEST_CASE("CUDA targets keep their suffix") {
  const auto plain = parse_target("sm_90"), specific = parse_target("sm_90a");
  REQUIRE(plain);
  REQUIRE(specific);
  CHECK(*plain != *specific);
  CHECK(compute_capability(*plain) == 90);
  CHECK(compute_capability(*specific) == 90);
  CHECK(compute_capability(*parse_target("sm_120")) == 120);
}

TEST_CASE("cpu and native both mean the host") {
  REQUIRE(parse_target("cpu"));
  CHECK(*parse_target("cpu") == host_cpu_target());
  CHECK(*parse_target("native") == host_cpu_target());
  CHECK(*parse_target(host_cpu_target().name) == host_cpu_target());
}

TEST_CASE("a text that names no target is refused and the accepted forms are listed") {
  for (const char* text : {"", "sm_", "sm_9", "sm_90b", "sm_90aa", "SM_90", "compute_90", "gpu"}) {
    CAPTURE(text);
    const auto parsed = parse_target(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().message.find("sm_90a") != std::string::npos);
  }
}
