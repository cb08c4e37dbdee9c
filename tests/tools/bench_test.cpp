#include "tools/bench.h"

#include <doctest/doctest.h>

using namespace laya::tools;

TEST_CASE("a quantile is one of the samples") {
  Samples samples;
  for (const double value : {5.0, 1.0, 3.0, 2.0, 4.0}) samples.add(value);
  CHECK(samples.quantile(0) == 1);
  CHECK(samples.quantile(0.5) == 3);
  CHECK(samples.quantile(0.95) == 5);
  CHECK(samples.quantile(1) == 5);
}

TEST_CASE("a figure's value is the median") {
  Samples samples;
  samples.add(1);
  samples.add(9);
  const Figure figure = figure_of("cold", "shape", "ms", samples);
  CHECK(figure.value == 1);
  CHECK(figure.p50 == 1);
  CHECK(figure.p95 == 9);
}
