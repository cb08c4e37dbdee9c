// out = act(s * (a * w^T) + bias): a linear layer, after a norm if there are moments of the rows of
// a (moments.cuh), else with s = 1. Accumulated in fp32; fp32 operands are multiplied in true fp32,
// 16-bit ones on tensor cores.
//
//! entry  gemm
//! launch dependent
//! param  T      word  fp32 bf16 fp16             elements of a, w and out
//! param  N      int   8..1048576 step 8          columns of out
//! param  K      int   8..1048576 step 8          columns of a and w
//! param  ACT    word  none relu gelu             gelu: exact, with erf
//! param  BM     int   16..256 step 16            tile: rows of a block
//! param  BN     int   16..256 step 16            tile: columns of a block
//! param  WM     int   8..128 step 8              tile: rows of a warp, 16 bits: step 16
//! param  WN     int   8..128 step 8              tile: columns of a warp, 16 bits: step 16
//! param  STAGES int   2..24                      tile: slabs of 128 bytes of k in flight
//!
//! arg    a      ptr                              [rows, K] T
//! arg    w      ptr                              [N, K] T
//! arg    bias   ptr                              [N] fp32, or null: none is added
//! arg    scales  ptr                             [rows] fp32, or null: from moments
//! arg    moments ptr                             [K / 32, R8, 2] fp32, or null; K % 32 == 0
//! arg    out    ptr                              [rows, N] T
//! arg    eps    f32                              added to the variance
//! arg    rows   i32                              may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes.
// Launch: grid.x = ceil(rows / BM) * ceil(N / BN), block.x = 32 * (BM / WM) * (BN / WN).
// Dynamic shared memory: max(STAGES * (BM + BN) * 128, BM * (BN + 8) * 4) bytes.
#include "gelu.cuh"
#include "moments.cuh"
#include "product_tile.cuh"

using Shape = TileShape<BM, BN, WM, WN, STAGES>;

__device__ inline float activate(float x) {
  if (ACT == ACT_relu) return fmaxf(x, 0);
  if (ACT == ACT_gelu) return gelu(x);
  return x;
}

extern "C" __global__ void __launch_bounds__(Shape::kThreads)
    gemm(const T* a, const T* w, const float* bias, const float* scales, const float* moments,
         T* out, float eps, int rows) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kUnits = BN / 8;  // 8 columns of one row are one thread's work
  static_assert(Shape::kThreads % kUnits == 0, "a thread keeps its columns");

  const auto [m0, n0, tile_rows, sums] = block_tile<T, Shape, N, K, 1>(a, w, rows, shared);
  const float* row_scales =
      tile_scales<BM, Shape::kThreads>(RowNorms<T, K>{scales, moments, eps, rows}, m0);

  const int column = threadIdx.x % kUnits * 8;
  if (N % BN != 0 && n0 + column >= N) return;
  const Float8 offset = bias != nullptr ? load8(bias + n0 + column) : zero8();
#pragma unroll 1
  for (int row = threadIdx.x / kUnits; row < tile_rows; row += Shape::kThreads / kUnits) {
    Float8 x = load8(sums + row * Shape::kPitch + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x.v[i] = activate(__fmaf_rn(x.v[i], row_scales[row], offset.v[i]));
    }
    store8(out + static_cast<long long>(m0 + row) * N + n0 + column, x);
  }
}
