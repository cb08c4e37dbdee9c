// Sums and maxima over the lanes of a warp, or over neighbouring lanes of it. Every lane ends with
// the same bits: partners add the same two numbers, and the order is fixed.
#pragma once

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000);

/// Over groups of `Lanes` neighbouring lanes (a power of two).
template <int Lanes>
__device__ inline float lanes_sum(float value) {
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

template <int Lanes>
__device__ inline float lanes_max(float value) {
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}
