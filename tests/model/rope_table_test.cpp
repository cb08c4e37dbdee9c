#include "model/rope_table.h"

#include <doctest/doctest.h>

#include <cmath>

namespace laya::model {

TEST_CASE("angles are position times frequency, with the first pair turning fastest") {
  const HostRopeTable table = make_rope_table(10000.0, 64, 100);
  REQUIRE(table.cos.size() == 100 * 32);
  REQUIRE(table.sin.size() == 100 * 32);
  CHECK(table.cos[0] == 1.0F);
  CHECK(table.sin[31] == 0.0F);
  CHECK(table.cos[32] == doctest::Approx(std::cos(1.0)));
  CHECK(table.sin[99 * 32] == doctest::Approx(std::sin(99.0)).epsilon(1e-6));
  const double slowest = std::pow(10000.0, -62.0 / 64);
  CHECK(table.sin[99 * 32 + 31] == doctest::Approx(std::sin(99 * slowest)).epsilon(1e-6));
}

TEST_CASE("a larger base turns the same pair more slowly") {
  const HostRopeTable local = make_rope_table(10000.0, 64, 2);
  const HostRopeTable global = make_rope_table(160000.0, 64, 2);
  CHECK(local.sin[32] == global.sin[32]);
  for (size_t pair = 1; pair < 32; ++pair) CHECK(local.sin[32 + pair] > global.sin[32 + pair]);
}

}  // namespace laya::model
