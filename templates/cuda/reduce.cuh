// Sums and maxima over the lanes of a warp, or over neighbouring lanes of it. Every lane of a
// group ends with the same bits: partners add the same two numbers, and the order is fixed.
#pragma once

enum : unsigned { kAllLanes = 0xffffffffu };
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

/// Sums over the warp of Count values, a power of two up to 32: lane i gets that of value
/// i / (32 / Count), as do the other lanes of its group. Takes Count shuffles or so instead of
/// 5 * Count.
template <int Count>
__device__ inline float distributed_sum(float (&values)[Count]) {
  static_assert(Count <= 32 && (Count & (Count - 1)) == 0);
  int offset = 16;
#pragma unroll
  for (int half = Count / 2; half > 0; half /= 2, offset /= 2) {
    const bool keeps_upper = (threadIdx.x & offset) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float other = keeps_upper ? values[i] : values[i + half];
      values[i] =
          (keeps_upper ? values[i + half] : values[i]) + __shfl_xor_sync(kAllLanes, other, offset);
    }
  }
  return lanes_sum<32 / Count>(values[0]);
}

template <int Lanes>
__device__ inline float lanes_max(float value) {
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}
