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
//! launch cluster CLUSTER
//! param  T          word  bf16 fp16              elements of a, w and qkv
//! param  HEADS      int   1..1024
//! param  HEAD_DIM   int   64..64
//! param  K          int   8..16777216 step 8     columns of a and w
//! param  BM         int   64..128 step 64        tile: rows
//! param  BN         int   32..256 step 32        tile: columns, divided by CLUSTER
//! param  CLUSTER    int   1..2                   blocks that share what they fetch of w
//! param  CONSUMERS  int   1..2                   warpgroups that multiply
//! param  SHARED     word  no yes                 yes: they share the rows of each tile
//! param  STAGES     int   2..24                  slabs of 64 k in flight
//! param  SPIN_LIMIT int   0..1000000000          0, or tries after which a wait traps
//!
//! arg    a          map T rows K BM 64           [rows, K] T
//! arg    w          map T 3*HEADS*HEAD_DIM K BN 64 by_thread 32  [3 * HEADS * HEAD_DIM, K] T
//! arg    angles     ptr                          [P, HEAD_DIM / 2, 2] fp32: cosine and sine
//! arg    positions  ptr                          [rows] i32, rows of angles; of the host
//! arg    scales     ptr                          [rows] fp32, or null: from moments
//! arg    moments    ptr                          [K / 32, R8, 2] fp32, or null; K % 32 == 0
//! arg    qkv        ptr                          [rows, 3 * HEADS * HEAD_DIM] T, written
//! arg    eps        f32                          added to the variance
//! arg    rows       i32                          may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes. A tile has C = CLUSTER * BN columns, up to 224; rows of one
// consumer times C <= 128 * 128, for K >= 2048 half of it.
// Launch and dynamic shared memory: as gemm_sm90, with N = 3 * HEADS * HEAD_DIM.
#include "moments.cuh"
#include "product_sm90.cuh"

enum : int { N = 3 * HEADS * HEAD_DIM };

using Shape = ProductShape<BM, BN, CLUSTER, CLUSTER, CONSUMERS, SHARED, 1, STAGES>;
using Pipeline = ProductPipeline<T, Shape, K, SPIN_LIMIT, 32>;
using Mine = ThreadElements<32>;
using Tiles = TileList<Shape, Shape::kColumns, N>;
using Scales = FragmentScales<T, K, Shape::kGroupRows / 64>;
enum : int { kGroups = Shape::kColumns / 32 };
/// Groups of a head that have angles of their own; the next head has the same.
enum : int { kAngleGroups = kGroups < 2 ? kGroups : 2 };
enum : int { kRotated = 2 * HEADS * HEAD_DIM };  ///< columns, of q and k

__device__ constexpr int greatest_common_divisor(int a, int b) {
  return b == 0 ? a : greatest_common_divisor(b, a % b);
}
/// Where v begins in a tile, if it does: at a multiple of so many columns.
enum : int { kStep = greatest_common_divisor(kRotated, Shape::kColumns) };

/// Cosine and sine for this thread's pairs of a row, in the first groups of the tile.
struct Angles {
  Float8 of[kAngleGroups];

  /// Rows behind the matrix take the last row's.
  __device__ void load(const float* angles, const int* positions, int row, int first_column,
                       int rows) {
    const long long position = positions[min(row, rows - 1)];
#pragma unroll
    for (int i = 0; i < kAngleGroups; ++i) {
      const int group = Shape::kColumns % HEAD_DIM == 0 ? i : (first_column / 32 + i) % 2;
      of[i] = load8(angles + position * HEAD_DIM + Mine::column(group));
    }
  }
};

/// Turns a pair of neighbours (x1, x2): (x1 cos - x2 sin, x2 cos + x1 sin).
__device__ inline void rotate(float& x1, float& x2, float cos, float sin) {
  const float x = __fmaf_rn(x1, cos, -__fmul_rn(x2, sin));
  x2 = __fmaf_rn(x2, cos, __fmul_rn(x1, sin));
  x1 = x;
}

/// Finishes what a thread has of one row: of 64 rows, row g or g + 8.
template <int Count>
__device__ inline void store_row(float (&sums)[Count], int half, const Angles& angles, float scale,
                                 T* to, int first_column) {
  bool is_rotated = true;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int column = first_column + Mine::column(group);
    if (N % Shape::kColumns != 0 && column >= N) break;
    if (group * 32 % kStep == 0) is_rotated = first_column + group * 32 < kRotated;
    if (is_rotated) {  // in place: else both ways would be copied to where they meet
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        const Float8& pairs = angles.of[group % kAngleGroups];
        rotate(sums[Mine::sum(group, half, i)], sums[Mine::sum(group, half, i + 1)], pairs.v[i],
               pairs.v[i + 1]);
      }
    }
    Float8 x;
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] = sums[Mine::sum(group, half, i)];
    store8(to + column, ::scale(x, scale));
  }
}

extern "C" __global__ void LAYA_CLUSTER __launch_bounds__(Shape::kThreads, 1)
    gemm_rope_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap w,
                   const float* angles, const int* positions, const float* scales,
                   const float* moments, T* qkv, float eps, int rows) {
  // A thread finishes rows one after the other. The angles of two come as early as there are
  // registers for them: with the product, or for 128 rows while its last slab is multiplied.
  constexpr int kRows = Shape::kGroupRows / 32;
  Angles turns[2];
  int column;  // where the tile begins
  const auto row_of = [](int first_row, int i) {
    return first_row + i / 2 * 64 + Mine::row(i % 2);
  };
  const auto load_turns = [&](int first_row, int i) {
    turns[i % 2].load(angles, positions, row_of(first_row, i), column, rows);
  };
  Scales row_scales({scales, moments, eps, rows});
  run_product<Pipeline>(
      a, w, Tiles(rows), [](const TilePosition& tile, int part) { return tile.column + part * BN; },
      [&](const TilePosition& tile, int first_row) {
        column = tile.column;
        // Before the scales, which wait for kernels: none writes angles.
        if constexpr (kRows == 2) load_turns(first_row, 0), load_turns(first_row, 1);
        row_scales.load(first_row);
      },
      [&](const TilePosition&, int first_row) {
        row_scales.finish();
        if constexpr (kRows > 2) load_turns(first_row, 0), load_turns(first_row, 1);
      },
      [&](const TilePosition&, int first_row, Pipeline::Sums& sums, const auto&) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const int row = row_of(first_row, i);
          const float scale = i % 2 == 0 ? row_scales.low(i / 2) : row_scales.high(i / 2);
          if (row < rows) {
            store_row(sums[i / 2], i % 2, turns[i % 2], scale,
                      qkv + static_cast<long long>(row) * N, column);
          }
          if (i + 2 < kRows) load_turns(first_row, i + 2);
        }
      });
}
