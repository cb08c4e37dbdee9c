// out = act(s * (a * w^T) + bias), as gemm, for 16-bit elements on Hopper: tensor cores fed from
// shared memory (wgmma), bulk tensor copies, blocks that stay for the whole product.
// product_sm90.cuh says how it works.
//
//! entry  gemm_sm90
//! launch dependent
//! launch cluster CLUSTER*SPLIT
//! param  T          word  bf16 fp16              elements of a, w and out
//! param  N          int   32..16777216 step 32   columns of out
//! param  K          int   8..16777216 step 8     columns of a and w
//! param  ACT        word  none relu gelu         gelu: exact, with erf
//! param  BM         int   64..128 step 64        tile: rows
//! param  BN         int   32..256 step 32        tile: columns, divided by CLUSTER
//! param  CLUSTER    int   1..2                   blocks that share what they fetch of w
//! param  CONSUMERS  int   1..2                   warpgroups that multiply
//! param  SHARED     word  no yes                 yes: they share the rows of each tile
//! param  SPLIT      int   1..4                   blocks that split k: 1; 2 or 4 if K >= 2048
//! param  STAGES     int   2..24                  slabs of 64 k in flight
//! param  SPIN_LIMIT int   0..1000000000          0, or tries after which a wait traps
//!
//! arg    a          map T rows K BM 64           [rows, K] T
//! arg    w          map T N K BN 64 by_thread 32 [N, K] T
//! arg    bias       ptr                          [N] fp32, or null: none is added
//! arg    scales     ptr                          [rows] fp32, or null: from moments
//! arg    moments    ptr                          [K / 32, R8, 2] fp32, or null; K % 32 == 0
//! arg    out        ptr                          [rows, N] T
//! arg    eps        f32                          added to the variance
//! arg    rows       i32                          may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes. A tile has C = CLUSTER * BN columns, up to 224; rows of one
// consumer times C <= 128 * 128, for K >= 2048 half of it. SPLIT: CLUSTER is 1, consumers share
// tiles, and C is a multiple of 32 * SPLIT.
// Launch: grid.x = ceil(rows / (BM * CLUSTER)) * ceil(N / C) * CLUSTER, or fewer in multiples of
// CLUSTER: best as many as there are multiprocessors; times SPLIT and never fewer, if that is
// not 1. block.x = 128 * (CONSUMERS + 1). Dynamic shared memory: STAGES * ((BM + C) * 128 + 16)
// bytes and, if SPLIT is not 1, BM * C * 16 / SPLIT + 16.
#include "fast_gelu.cuh"
#include "moments.cuh"
#include "product_sm90.cuh"

using Shape = ProductShape<BM, BN, CLUSTER, CLUSTER, CONSUMERS, SHARED, SPLIT, STAGES>;
using Pipeline = ProductPipeline<T, Shape, K, SPIN_LIMIT, 32>;
using Mine = ThreadElements<32>;
using Tiles = TileList<Shape, Shape::kColumns, N>;
using Scales = FragmentScales<T, K, Shape::kGroupRows / 64>;
enum : int { kGroups = Shape::kOutColumns / 32 };

__device__ inline float finish(float x, float scale, float offset) {
  x = __fmaf_rn(x, scale, offset);
  if (ACT == ACT_relu) return fmaxf(x, 0);
  if (ACT == ACT_gelu) return fast_gelu(x);
  return x;
}

/// The bias of this thread's columns of a tile; 0 behind the matrix.
struct Bias {
  Float8 of[kGroups];

  __device__ void load(const float* bias, int first_column) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int column = first_column + Mine::column(group);
      of[group] = bias != nullptr && column < N ? load8(bias + column) : zero8();
    }
  }
};

__device__ inline void store_tile(const Pipeline::Sums& sums, const Scales& scales,
                                  const Bias& bias, T* out, int first_row, int first_column,
                                  int rows) {
  const int row = first_row + Mine::row(0), column = first_column + Mine::column(0);
  T* const to = out + (static_cast<long long>(row) * N + column);
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (N % Shape::kOutColumns != 0 && column + group * 32 >= N) break;
#pragma unroll
    for (int i = 0; i < Shape::kGroupRows / 64 * 2; ++i) {
      const int block = i / 2, half = i % 2, down = block * 64 + half * 8;
      const float scale = half == 0 ? scales.low(block) : scales.high(block);
      Float8 x;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        x.v[j] = finish(sums[block][Mine::sum(group, half, j)], scale, bias.of[group].v[j]);
      }
      if (row + down < rows) store8(to + (down * N + group * 32), x);
    }
  }
}

extern "C" __global__ void LAYA_CLUSTER __launch_bounds__(Shape::kThreads, 1)
    gemm_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap w,
              const float* bias, const float* scales, const float* moments, T* out, float eps,
              int rows) {
  // Where there are registers, loaded before the product, and without a wait: no kernel writes it.
  constexpr bool kIsEarly = Pipeline::kChunks == 1 || SPLIT > 1;
  Bias tile_bias;
  Scales row_scales({scales, moments, eps, rows});
  run_product<Pipeline>(
      a, w, Tiles(rows), [](const TilePosition& tile, int part) { return tile.column + part * BN; },
      [&](const TilePosition& tile, int row) {
        const int share = SPLIT > 1 ? cluster_rank() * Shape::kOutColumns : 0;
        if constexpr (kIsEarly) tile_bias.load(bias, tile.column + share);
        row_scales.load(row);
      },
      [&](const TilePosition&, int) { row_scales.finish(); },
      [&](const TilePosition& tile, int row, const Pipeline::Sums& sums, const auto&) {
        if (SPLIT > 1 && tile.column >= N) return;  // a share behind the matrix
        if constexpr (!kIsEarly) tile_bias.load(bias, tile.column);
        store_tile(sums, row_scales, tile_bias, out, row, tile.column, rows);
      });
}
