#include "tools/console.h"

#include <doctest/doctest.h>

using namespace laya::tools;

TEST_CASE("sizes and times are shown in the unit that suits them") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(int64_t{3} << 50) == "3072.0 TiB");
  CHECK(format_seconds(0.0000123) == "12 us");
  CHECK(format_seconds(0.0123) == "12.30 ms");
  CHECK(format_seconds(1.5) == "1.50 s");
  CHECK(format_seconds(125.2) == "2 min 05 s");
}

TEST_CASE("a kernel's name is shown without the features of the CPU") {
  CHECK(without_features("rope{D=64}@x86_64:znver4:+avx,+fma") == "rope{D=64}@x86_64:znver4");
  CHECK(without_features("rope{D=64}@sm_90a") == "rope{D=64}@sm_90a");
  CHECK(without_features("no kernel") == "no kernel");
}
