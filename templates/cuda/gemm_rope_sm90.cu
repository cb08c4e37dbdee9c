// qkv = s * (a * w^T) with rotary position embedding on q and k, as gemm followed by rope, for
// 16-bit elements and heads of 64 on Hopper. product_sm90.cuh says how the product works. Computed
// in fp32 and rounded once.
//
// Heads of q and k are interleaved: elements that are rotated with each other, i and i + 32, are
// neighbours, in w and so in qkv. Then a thread has both in tiles of any width, and their products
// q * k are the same.
//
//! entry  gemm_rope_sm90
//! launch dependent
//! param  T          word  bf16 fp16              elements of a, w and qkv
//! param  HEADS      int   1..1024
//! param  HEAD_DIM   int   64..64
//! param  K          int   8..16777216 step 8     columns of a and w
//! param  BM         int   64..128 step 64        tile: rows
//! param  BN         int   8..256 step 8          tile: columns, divided by CLUSTER
//! param  CLUSTER    int   1..2                   blocks that share what they fetch of w
//! param  CONSUMERS  int   1..2                   warpgroups that multiply
//! param  SHARED     word  no yes                 yes: they share the rows of each tile
//! param  STAGES     int   2..24                  slabs of 64 k in flight
//! param  SPIN_LIMIT int   0..1000000000          0, or tries after which a wait traps
//!
//! arg    a          map T rows K BM 64           [rows, K] T
//! arg    w          map T 3*HEADS*HEAD_DIM K BN 64  [3 * HEADS * HEAD_DIM, K] T: q, k, v heads
//! arg    angles     ptr                          [P, HEAD_DIM / 2, 2] fp32: cosine and sine
//! arg    positions  ptr                          [rows] i32, rows of angles; of the host
//! arg    scales     ptr                          [rows] fp32, or null: from moments
//! arg    moments    ptr                          [rows, K / 32, 2] fp32, or null; K % 32 == 0
//! arg    qkv        ptr                          [rows, 3 * HEADS * HEAD_DIM] T, written
//! arg    eps        f32                          added to the variance
//! arg    rows       i32                          may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes. A tile has C = CLUSTER * BN columns, up to 256, above 96 a
// multiple of 16; rows of one consumer times C <= 128 * 128, for K >= 2048 half of it.
// Launch and dynamic shared memory: as gemm_sm90, with N = 3 * HEADS * HEAD_DIM.
#include "moments.cuh"
#include "product_sm90.cuh"

constexpr int N = 3 * HEADS * HEAD_DIM;

using Shape = ProductShape<BM, BN, CLUSTER, CLUSTER, CONSUMERS, SHARED, 1, STAGES>;
using Pipeline = ProductPipeline<T, Shape, K, SPIN_LIMIT>;
using Writer = WarpWriter<T, Shape::kColumns>;
using Tiles = TileList<Shape, Shape::kColumns, N>;
using Scales = FragmentScales<T, K, Shape::kGroupRows / 64>;
constexpr int kHeadBlocks = HEAD_DIM / 8;  ///< of 8 columns
constexpr int kAngles = Shape::kColumns / 8 < kHeadBlocks ? Shape::kColumns / 8 : kHeadBlocks;

__device__ constexpr int greatest_common_divisor(int a, int b) {
  return b == 0 ? a : greatest_common_divisor(b, a % b);
}

/// (x1, x2) turned: (x1 cos - x2 sin, x2 cos + x1 sin).
__device__ inline void rotate(float& x1, float& x2, float2 angle) {
  const float y1 = __fmaf_rn(x1, angle.x, -__fmul_rn(x2, angle.y));
  x2 = __fmaf_rn(x2, angle.x, __fmul_rn(x1, angle.y));
  x1 = y1;
}

/// cos and sin for this thread's pairs of a row: of the tile's first blocks of 8 columns, and so of
/// every eighth behind them.
struct Angles {
  float2 of[kAngles];

  /// Rows behind the matrix take the last row's.
  __device__ void load(const float* angles, const int* positions, int row, int first_column,
                       int rows) {
    const float2* from = reinterpret_cast<const float2*>(angles) +
                         positions[min(row, rows - 1)] * (HEAD_DIM / 2LL) + threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kAngles; ++i) {
      const int block = Shape::kColumns % HEAD_DIM == 0 ? i : (first_column / 8 + i) % kHeadBlocks;
      of[i] = from[block * 4];
    }
  }
};

constexpr int kRotated = 2 * HEADS * HEAD_DIM;  ///< columns, of q and k
/// Where v begins in a tile, if it does: at a multiple of so many columns.
constexpr int kStep = greatest_common_divisor(kRotated, Shape::kColumns);

/// Rotates what a row of the tile holds of q and k: of 64 rows, row g or g + 8 of this thread.
__device__ inline void rotate_heads(float (&sums)[Shape::kColumns / 2], int half,
                                    const Angles& angles, int first_column) {
#pragma unroll
  for (int block = 0; block < Shape::kColumns / 8; ++block) {
    if (block * 8 % kStep == 0 && first_column + block * 8 >= kRotated) break;
    float* x = &sums[block * 4 + half * 2];
    rotate(x[0], x[1], angles.of[block % kAngles]);
  }
}

__device__ inline void store_tile(const Writer& writer, const Pipeline::Sums& sums,
                                  const Scales& scales, T* qkv, int first_row, int first_column,
                                  int rows) {
#pragma unroll
  for (int i = 0; i < Shape::kGroupRows / 64; ++i) {
    const int row = first_row + i * 64 + threadIdx.x % 128 / 32 * 16;
#pragma unroll
    for (int pass = 0; pass < Writer::kPasses; ++pass) {
#pragma unroll
      for (int block = 0; block < Writer::kBlocks; ++block) {
        const float* x = &sums[i][(pass * Writer::kBlocks + block) * 4];
        const float low = scales.low(i), high = scales.high(i);
        writer.put(block, pack2<T>(x[0] * low, x[1] * low), pack2<T>(x[2] * high, x[3] * high));
      }
      writer.store<N>(qkv, row, first_column + pass * Writer::kBlocks * 8, rows);
    }
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(Shape::kThreads, 1)
    gemm_rope_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap w,
                   const float* angles, const int* positions, const float* scales,
                   const float* moments, T* qkv, float eps, int rows) {
  // The angles come as early as there are registers for them: those of 64 rows with the product,
  // those of 128 in two parts, the first while the last slab is multiplied.
  constexpr int kBlocks = Shape::kGroupRows / 64;
  Angles turns[kBlocks][2];  // of each 64 rows, those of rows g and g + 8
  int column;                // where the tile begins
  const auto load_turns = [&](int block, int first_row) {
    const int row = first_row + block * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    turns[block][0].load(angles, positions, row, column, rows);
    turns[block][1].load(angles, positions, row + 8, column, rows);
  };
  Scales row_scales({scales, moments, eps});
  run_product<Pipeline, Writer>(
      a, w, Tiles(rows), [](const TilePosition& tile, int part) { return tile.column + part * BN; },
      [&](const TilePosition& tile, int row) {
        column = tile.column;
        if constexpr (kBlocks == 1) load_turns(0, row);
        row_scales.load(row, rows);
      },
      [&](int row) {
        row_scales.finish();
        if constexpr (kBlocks == 2) load_turns(0, row);
      },
      [&](const Writer& writer, const TilePosition&, int row, Pipeline::Sums& sums, const auto&) {
        if constexpr (kBlocks == 2) load_turns(1, row);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          rotate_heads(sums[block], 0, turns[block][0], column);
          rotate_heads(sums[block], 1, turns[block][1], column);
        }
        store_tile(writer, sums, row_scales, qkv, row, column, rows);
      });
}
