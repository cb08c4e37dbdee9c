#include "model/fold_norm.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace laya::model {
namespace {

std::vector<float> random_values(size_t count, float mean, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, 1);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace

TEST_CASE("a folded row times x over the deviation is the row times the norm of x") {
  for (const size_t columns : {1, 5, 16, 768, 1027}) {
    CAPTURE(columns);
    const std::vector<float> x = random_values(columns, 3, 1), g = random_values(columns, 1, 2);
    const std::vector<float> c = random_values(columns, 0, 3), w = random_values(columns, 0, 4);
    const double n = static_cast<double>(columns);
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
    double squares = 0;
    for (const float value : x) squares += (value - mean) * (value - mean);
    const double deviation = std::sqrt(squares / n + 1e-5);

    std::vector<float> folded = w;
    fold_norm_weight(folded, g);
    double expected = 0, actual = folded_norm_bias(w, c);
    for (size_t i = 0; i < columns; ++i) {
      expected += ((x[i] - mean) / deviation * g[i] + c[i]) * w[i];
      actual += double{x[i]} * folded[i] / deviation;
    }
    CHECK(actual == doctest::Approx(expected).epsilon(1e-4));
  }
}

TEST_CASE("a folded row has a mean of zero") {
  std::vector<float> row = random_values(768, 5, 6);
  fold_norm_weight(row, random_values(768, 2, 7));
  CHECK(std::abs(std::accumulate(row.begin(), row.end(), 0.0)) < 1e-2);
}

}  // namespace laya::model
