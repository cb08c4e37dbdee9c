// LayerNorm of one row: mean and variance in two passes over fp32, so that a large mean does not
// cancel the variance.
#pragma once

#include "vectors.h"

namespace {

struct Moments {
  fp32 mean;
  fp32 scale;  ///< 1 / sqrt(variance + eps)
};

template <int D>
inline Moments moments_of(const fp32* row, fp32 eps) {
  Vec total = 0;
  for_vectors<D>([&](int i, auto n) { total += load(row + i, n); });
  const fp32 mean = sum(total) / D;
  Vec squares = 0;
  for_vectors<D>([&](int i, auto n) {
    const Vec distance = clear_unused(load(row + i, n) - mean, n);
    squares = fma(distance, distance, squares);
  });
  return {mean, 1.0f / __builtin_elementwise_sqrt(sum(squares) / D + eps)};
}

inline Vec normalize(Vec x, Moments moments) {
  return (x - moments.mean) * moments.scale;
}

}  // namespace
