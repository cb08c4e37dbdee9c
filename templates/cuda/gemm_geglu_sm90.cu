// out = gelu(u) * g with u = s * (a * w[:N]^T) and g = s * (a * w[N:]^T), as gemm_geglu, for 16-bit
// elements on Hopper. product_sm90.cuh says how the product works; a thread holds u and g of the
// same columns.
//
//! entry  gemm_geglu_sm90
//! launch dependent
//! launch cluster CLUSTER
//! param  T          word  bf16 fp16              elements of a, w and out
//! param  N          int   16..16777216 step 16   columns of out
//! param  K          int   8..16777216 step 8     columns of a and w
//! param  BM         int   64..128 step 64        tile: rows
//! param  BN         int   16..128 step 16        tile: columns of out
//! param  CLUSTER    int   1..2                   blocks that share what they fetch of w
//! param  CONSUMERS  int   1..2                   warpgroups that multiply
//! param  SHARED     word  no yes                 yes: they share the rows of each tile
//! param  STAGES     int   2..24                  slabs of 64 k in flight
//! param  SPIN_LIMIT int   0..1000000000          0, or tries after which a wait traps
//!
//! arg    a          map T rows K BM 64           [rows, K] T
//! arg    w          map T 2*N K BN 64 by_thread 16  [2N, K] T: u's rows, then g's
//! arg    scales     ptr                          [rows] fp32, or null: from moments
//! arg    moments    ptr                          [K / 32, R8, 2] fp32, or null; K % 32 == 0
//! arg    out        ptr                          [rows, N] T
//! arg    eps        f32                          added to the variance
//! arg    rows       i32                          may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes. BN <= 128; rows of one consumer times BN <= 128 * 64, for
// K >= 2048 half of it.
// Launch: grid.x = ceil(rows / (BM * CLUSTER)) * ceil(N / BN) * CLUSTER, or fewer in multiples of
// CLUSTER: best as many as there are multiprocessors; block.x = 128 * (CONSUMERS + 1).
// Dynamic shared memory: STAGES * ((BM + 2 * BN) * 128 + 16) bytes.
#include "fast_gelu.cuh"
#include "moments.cuh"
#include "product_sm90.cuh"

using Shape = ProductShape<BM, BN, 2, CLUSTER, CONSUMERS, SHARED, 1, STAGES>;
using Pipeline = ProductPipeline<T, Shape, K, SPIN_LIMIT, 16>;
using Mine = ThreadElements<16>;
using Tiles = TileList<Shape, BN, N>;
using Scales = FragmentScales<T, K, Shape::kGroupRows / 64>;

__device__ inline float geglu(float u, float g, float scale) {
  return fast_gelu(u * scale) * (g * scale);
}

__device__ inline void store_tile(const Pipeline::Sums& sums, const Scales& scales, T* out,
                                  int first_row, int first_column, int rows) {
  constexpr int kGroups = BN / 16;
  const int row = first_row + Mine::row(0), column = first_column + Mine::column(0);
  T* const to = out + (static_cast<long long>(row) * N + column);
#pragma unroll
  for (int i = 0; i < Shape::kGroupRows / 64 * 2; ++i) {
    const int block = i / 2, half = i % 2, down = block * 64 + half * 8;
    const float scale = half == 0 ? scales.low(block) : scales.high(block);
    float x[kGroups][4];  // first all of them: between branches each group would wait for itself
#pragma unroll
    for (int j = 0; j < kGroups * 4; ++j) {
      const int group = j / 4;
      x[group][j % 4] = geglu(sums[block][Mine::sum(group, half, j % 4)],
                              sums[block][Mine::sum(kGroups + group, half, j % 4)], scale);
    }
    if (row + down >= rows) continue;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (N % BN != 0 && column + group * 16 >= N) break;
      store4(to + (down * N + group * 16), x[group]);
    }
  }
}

extern "C" __global__ void LAYA_CLUSTER __launch_bounds__(Shape::kThreads, 1)
    gemm_geglu_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap w,
                    const float* scales, const float* moments, T* out, float eps, int rows) {
  Scales row_scales({scales, moments, eps, rows});
  run_product<Pipeline>(
      a, w, Tiles(rows), [](const TilePosition& tile, int part) { return tile.column + part * N; },
      [&](const TilePosition&, int row) { row_scales.load(row); },
      [&](const TilePosition&, int) { row_scales.finish(); },
      [&](const TilePosition& tile, int row, const Pipeline::Sums& sums, const auto&) {
        store_tile(sums, row_scales, out, row, tile.column, rows);
      });
}
