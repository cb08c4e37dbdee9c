// Exact GELU, with the error function rather than the tanh approximation.
#pragma once

__device__ inline float gelu(float x) {
  constexpr float kInverseSqrt2 = 0.70710678118654752f;
  const float half = 0.5f * x;
  return __fmaf_rn(half, erff(x * kInverseSqrt2), half);
}
