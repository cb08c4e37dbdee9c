// out = gelu(u) * g with u = s * (a * w[:N]^T) and g = s * (a * w[N:]^T): the first half of
// ModernBERT's MLP in one kernel, with the norm before it if there are moments of the rows of a
// (moments.cuh), else with s = 1. u and g stay in fp32 until the product is rounded. GELU is exact
// (erf).
//
//! entry  gemm_geglu
//! launch dependent
//! param  T      word  fp32 bf16 fp16             elements of a, w and out
//! param  N      int   8..1048576 step 8          columns of out
//! param  K      int   8..1048576 step 8          columns of a and w
//! param  BM     int   16..256 step 16            tile: rows of a block
//! param  BN     int   32..256 step 32            tile: columns of u and g together
//! param  WM     int   16..128 step 16            tile: rows of a warp
//! param  WN     int   16..128 step 16            tile: columns of a warp
//! param  STAGES int   2..8                       tile: slabs of 128 bytes of k in flight
//!
//! arg    a      ptr                              [rows, K] T
//! arg    w      ptr                              [2N, K] T: u's rows, then g's
//! arg    scales  ptr                             [rows] fp32, or null: from moments
//! arg    moments ptr                             [K / 32, R8, 2] fp32, or null; K % 32 == 0
//! arg    out    ptr                              [rows, N] T
//! arg    eps    f32                              added to the variance
//! arg    rows   i32                              may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes.
// Launch: grid.x = ceil(rows / BM) * ceil(2N / BN), block.x = 32 * (BM / WM) * (BN / WN).
// Dynamic shared memory: max(STAGES * (BM + BN) * 128, BM * (BN + 8) * 4) bytes.
#include "gelu.cuh"
#include "moments.cuh"
#include "product_tile.cuh"

using Shape = TileShape<BM, BN, WM, WN, STAGES>;

extern "C" __global__ void __launch_bounds__(Shape::kThreads)
    gemm_geglu(const T* a, const T* w, const float* scales, const float* moments, T* out, float eps,
               int rows) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kColumns = BN / 2;      // of out
  constexpr int kUnits = kColumns / 8;  // 8 columns of one row are one thread's work
  static_assert(Shape::kThreads % kUnits == 0, "a thread keeps its columns");

  const auto [m0, n0, tile_rows, sums] = block_tile<T, Shape, N, K, 2>(a, w, rows, shared);
  const float* row_scales =
      tile_scales<BM, Shape::kThreads>(RowNorms<T, K>{scales, moments, eps, rows}, m0);

  const int column = threadIdx.x % kUnits * 8;
  if (N % kColumns != 0 && n0 + column >= N) return;
#pragma unroll 1
  for (int row = threadIdx.x / kUnits; row < tile_rows; row += Shape::kThreads / kUnits) {
    Float8 u = load8(sums + row * Shape::kPitch + column);
    const Float8 g = load8(sums + row * Shape::kPitch + kColumns + column);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      u.v[i] = gelu(u.v[i] * row_scales[row]) * (g.v[i] * row_scales[row]);
    store8(out + static_cast<long long>(m0 + row) * N + n0 + column, u);
  }
}
