// Dot products of fp32 vectors by one warp, in an order that depends on the length only.
#pragma once

#include "reduce.cuh"
#include "residual.cuh"

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

/// The same with the row of a residual stream that begins at `row_begin`. Length is a multiple
/// of 8.
template <int Length, class Elem>
__device__ inline float warp_dot(const ResidualStream<Elem>& a, long long row_begin,
                                 const float* b) {
  static_assert(Length % 8 == 0, "vectors are read 8 at a time");
  float sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x % 32 * 8; i < Length; i += 256) {
    const Float8 x = a.load8(row_begin + i), y = load8(b + i);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = __fmaf_rn(x.v[j], y.v[j], sum);
  }
  return lanes_sum<32>(sum);
}
