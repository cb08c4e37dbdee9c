// out = act(s * (a * w^T) + bias), as gemm, for 16-bit elements on Hopper: tensor cores fed from
// shared memory (wgmma), bulk tensor copies, blocks that stay for the whole product.
// product_sm90.cuh says how it works.
//
//! entry  gemm_sm90
//! launch dependent
//! param  T          word  bf16 fp16              elements of a, w and out
//! param  N          int   8..16777216 step 8     columns of out
//! param  K          int   8..16777216 step 8     columns of a and w
//! param  ACT        word  none relu gelu         gelu: exact, with erf
//! param  BM         int   64..128 step 64        tile: rows
//! param  BN         int   8..256 step 8          tile: columns, divided by CLUSTER
//! param  CLUSTER    int   1..2                   blocks that share what they fetch of w
//! param  CONSUMERS  int   1..2                   warpgroups that multiply
//! param  SHARED     word  no yes                 yes: they share the rows of each tile
//! param  SPLIT      int   1..4                   blocks that split k: 1, or 4 if K >= 2048
//! param  STAGES     int   2..24                  slabs of 64 k in flight
//! param  SPIN_LIMIT int   0..1000000000          0, or tries after which a wait traps
//!
//! arg    a          map T rows K BM 64           [rows, K] T
//! arg    w          map T N K BN 64              [N, K] T
//! arg    bias       ptr                          [N] fp32, or null: none is added
//! arg    scales     ptr                          [rows] fp32, or null: from moments
//! arg    moments    ptr                          [rows, K / 32, 2] fp32, or null; K % 32 == 0
//! arg    out        ptr                          [rows, N] T
//! arg    eps        f32                          added to the variance
//! arg    rows       i32                          may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes. A tile has C = CLUSTER * BN columns: C <= 256; rows of one
// consumer times C <= 128 * 128, for K >= 2048 half of it. SPLIT: CLUSTER is 1, consumers share
// tiles, and C is a multiple of 8 * SPLIT.
// Launch: grid.x = ceil(rows / (BM * CLUSTER)) * ceil(N / C) * CLUSTER, or fewer in multiples of
// CLUSTER: best as many as there are multiprocessors; times SPLIT and never fewer, if that is
// not 1. block.x = 128 * (CONSUMERS + 1). Dynamic shared memory: STAGES * ((BM + C) * 128 + 16) +
// CONSUMERS * 1024 * (b | 1) bytes, where b = C / SPLIT / 8, halved if it is even and above 12;
// and, if SPLIT is not 1, BM * C * 4 + 16.
#include "fast_gelu.cuh"
#include "moments.cuh"
#include "product_sm90.cuh"

using Shape = ProductShape<BM, BN, CLUSTER, CLUSTER, CONSUMERS, SHARED, SPLIT, STAGES>;
using Pipeline = ProductPipeline<T, Shape, K, SPIN_LIMIT>;
using Writer = WarpWriter<T, Shape::kOutColumns>;
using Tiles = TileList<Shape, Shape::kColumns, N>;
using Scales = FragmentScales<T, K, Shape::kGroupRows / 64>;

__device__ inline float finish(float x, float scale, float offset) {
  x = __fmaf_rn(x, scale, offset);
  if (ACT == ACT_relu) return fmaxf(x, 0);
  if (ACT == ACT_gelu) return fast_gelu(x);
  return x;
}

__device__ inline void store_tile(const Writer& writer, const Pipeline::Sums& sums,
                                  const Scales& scales, const float* bias, T* out, int first_row,
                                  int first_column, int rows) {
  const int lane_column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < Shape::kGroupRows / 64; ++i) {
    const int row = first_row + i * 64 + threadIdx.x % 128 / 32 * 16;
#pragma unroll
    for (int pass = 0; pass < Writer::kPasses; ++pass) {
      const int column = first_column + pass * Writer::kBlocks * 8;
#pragma unroll
      for (int block = 0; block < Writer::kBlocks; ++block) {
        const float* x = &sums[i][(pass * Writer::kBlocks + block) * 4];
        float2 b = make_float2(0, 0);
        if (bias != nullptr && (N % Shape::kOutColumns == 0 || column + block * 8 < N)) {
          b = *reinterpret_cast<const float2*>(bias + column + block * 8 + lane_column);
        }
        const float low = scales.low(i), high = scales.high(i);
        writer.put(block, pack2<T>(finish(x[0], low, b.x), finish(x[1], low, b.y)),
                   pack2<T>(finish(x[2], high, b.x), finish(x[3], high, b.y)));
      }
      writer.store<N>(out, row, column, rows);
    }
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER* SPLIT, 1, 1)
    __launch_bounds__(Shape::kThreads, 1)
        gemm_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap w,
                  const float* bias, const float* scales, const float* moments, T* out, float eps,
                  int rows) {
  Scales row_scales({scales, moments, eps});
  run_product<Pipeline, Writer>(
      a, w, Tiles(rows), [](const TilePosition& tile, int part) { return tile.column + part * BN; },
      [&](const TilePosition&, int row) { row_scales.load(row, rows); },
      [&](int) { row_scales.finish(); },
      [&](const Writer& writer, const TilePosition& tile, int row, const Pipeline::Sums& sums,
          const auto&) {
        if (SPLIT > 1 && tile.column >= N) return;  // a share behind the matrix
        store_tile(writer, sums, row_scales, bias, out, row, tile.column, rows);
      });
}
