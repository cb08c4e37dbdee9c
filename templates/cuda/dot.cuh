// Dot products of fp32 vectors by one warp, in an order that depends on the length only.
#pragma once

#include "reduce.cuh"
#include "types.cuh"

/// Length is a multiple of 4; both vectors are aligned to 16 bytes. All lanes get the sum.
template <int Length>
__device__ inline float warp_dot(const float* a, const float* b) {
  static_assert(Length % 4 == 0, "vectors are read 4 at a time");
  float sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x % 32 * 4; i < Length; i += 128) {
    const float4 x = *reinterpret_cast<const float4*>(a + i);
    const float4 y = *reinterpret_cast<const float4*>(b + i);
    sum = __fmaf_rn(x.x, y.x, sum);
    sum = __fmaf_rn(x.y, y.y, sum);
    sum = __fmaf_rn(x.z, y.z, sum);
    sum = __fmaf_rn(x.w, y.w, sum);
  }
  return lanes_sum<32>(sum);
}
