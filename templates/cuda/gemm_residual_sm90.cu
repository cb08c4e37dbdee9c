// x += a * w^T + bias with out = x in T and moments of its rows, as gemm_residual, for 16-bit
// elements on Hopper. product_sm90.cuh says how the product works. Of each group of 32 columns that
// moments describe, 4 neighbouring threads have 8 each.
//
//! entry  gemm_residual_sm90
//! launch dependent
//! param  T          word  bf16 fp16              elements of a, w and out
//! param  N          int   32..16777216 step 32   columns of x
//! param  K          int   8..16777216 step 8     columns of a and w
//! param  BM         int   64..128 step 64        tile: rows
//! param  BN         int   16..128 step 16        tile: columns, divided by CLUSTER
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
//! arg    x          map fp32 rows N BM 32        [rows, N] fp32
//! arg    new_x      ptr                          x, updated
//! arg    out        ptr                          [rows, N] T, written
//! arg    moments    ptr                          [rows, N / 32, 2] fp32, written
//! arg    rows       i32                          may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes. A tile has C = CLUSTER * BN columns: 32, 64, 96 or 128, and
// 128 if blocks split k; rows of one consumer times C <= 64 * 128, for K >= 2048 without SPLIT
// 64 * 96. SPLIT: CLUSTER is 1, consumers share tiles. STAGES is at least C / 32 divided by
// 1 + C / BM (rounded down), rounded up.
// Launch and dynamic shared memory: as gemm_sm90.
#include "moments.cuh"
#include "product_sm90.cuh"

using Shape = ProductShape<BM, BN, CLUSTER, CLUSTER, CONSUMERS, SHARED, SPLIT, STAGES>;
using Pipeline = ProductPipeline<T, Shape, K, SPIN_LIMIT, Shape::kOutColumns / 32>;
using Writer = WarpWriter<T, Shape::kOutColumns>;
using Tiles = TileList<Shape, Shape::kColumns, N>;
constexpr int kGroupBlocks = kMomentColumns / 8;
static_assert(Writer::kBlocks % kGroupBlocks == 0, "a pass handles whole groups");

/// The passes over what a consumer finishes of a tile, one after the other: 16 rows of a warp, and
/// some of the columns.
constexpr int kPasses = Shape::kGroupRows / 64 * Writer::kPasses;

/// First row and column of a pass in what a consumer finishes.
__device__ inline int pass_row(int pass) {
  return pass / Writer::kPasses * 64 + threadIdx.x % 128 / 32 * 16;
}
__device__ constexpr int pass_column(int pass) {
  return pass % Writer::kPasses * Writer::kBlocks * 8;
}

/// What this thread adds to in a pass: columns 2t, 2t + 1 of each block of 8, in rows g and g + 8.
struct Residual {
  float2 low[Writer::kBlocks], high[Writer::kBlocks];

  /// `row` and `column` are the pass's first. Rows behind the last take that one's.
  __device__ void load(const float* x, int row, int column, int rows) {
    row += threadIdx.x % 32 / 4, column += threadIdx.x % 4 * 2;
    const float* from_low = x + static_cast<long long>(min(row, rows - 1)) * N + column;
    const float* from_high = x + static_cast<long long>(min(row + 8, rows - 1)) * N + column;
#pragma unroll
    for (int block = 0; block < Writer::kBlocks; ++block) {
      if (N % Shape::kOutColumns != 0 && column + block * 8 >= N) break;
      low[block] = *reinterpret_cast<const float2*>(from_low + block * 8);
      high[block] = *reinterpret_cast<const float2*>(from_high + block * 8);
    }
  }

  /// `row` and `column` are the pass's first in the boxes, each of 32 columns.
  template <class BoxAddress>
  __device__ void take(const BoxAddress& box_address, int row, int column) {
    row += threadIdx.x % 32 / 4;
#pragma unroll
    for (int block = 0; block < Writer::kBlocks; ++block) {
      const u32 box = box_address(column / 32 + block / kGroupBlocks);
      const int t = block % kGroupBlocks * 4 + threadIdx.x % 4;
      low[block] = load2_from_box(box, row, t);
      high[block] = load2_from_box(box, row + 8, t);
    }
  }
};

/// x of a tile on its way through the ring.
struct Extra {
  const TensorMap& x;
  Residual (&residuals)[kPasses];

  __device__ void load(const TilePosition& tile, int box, u32 to, u32 barrier) const {
    load_box(to, x, tile.row, tile.column + box * 32, barrier);
  }
  template <class BoxAddress>
  __device__ void take(int row, const BoxAddress& box_address) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      residuals[pass].take(box_address, row + pass_row(pass), pass_column(pass));
    }
  }
};

/// One row of a group: adds, stores x and the group's moments. `sums`: of its four blocks, from
/// this row's on; returns the new values.
struct GroupRow {
  float v[2 * kGroupBlocks];

  __device__ GroupRow(const float2* old, const float* sums, const float2* bias, float* x,
                      float* moments, int row, int column, int rows) {
#pragma unroll
    for (int i = 0; i < kGroupBlocks; ++i) {
      v[2 * i] = old[i].x + (sums[i * 4] + bias[i].x);
      v[2 * i + 1] = old[i].y + (sums[i * 4 + 1] + bias[i].y);
    }
    const float2 group = group_moments<4>(v);
    const long long at = static_cast<long long>(row) * N + column;
    if (row < rows) {
#pragma unroll
      for (int i = 0; i < kGroupBlocks; ++i) {
        *reinterpret_cast<float2*>(x + at + i * 8) = make_float2(v[2 * i], v[2 * i + 1]);
      }
      if (threadIdx.x % 4 == 0) reinterpret_cast<float2*>(moments)[at / kMomentColumns] = group;
    }
  }

  __device__ u32 packed(int block) const {
    return pack2<T>(v[2 * block] * kResidualUnit<T>, v[2 * block + 1] * kResidualUnit<T>);
  }
};

/// What the kernel writes to.
struct Output {
  float* x;
  T* out;
  float* moments;
  int rows;
};

/// One pass over 16 rows of a warp: `row` and `column` are the warp's first.
__device__ inline void store_pass(const Writer& writer, const Residual& old, const float* sums,
                                  const float* bias, const Output& to, int row, int column) {
  const int lane_row = row + threadIdx.x % 32 / 4, lane_column = column + threadIdx.x % 4 * 2;
#pragma unroll
  for (int first = 0; first < Writer::kBlocks; first += kGroupBlocks) {
    if (N % Shape::kOutColumns != 0 && column + first * 8 >= N) break;
    float2 added[kGroupBlocks];
#pragma unroll
    for (int i = 0; i < kGroupBlocks; ++i) {
      added[i] = bias == nullptr
                     ? make_float2(0, 0)
                     : *reinterpret_cast<const float2*>(bias + lane_column + (first + i) * 8);
    }
    const GroupRow low(old.low + first, sums + first * 4, added, to.x, to.moments, lane_row,
                       lane_column + first * 8, to.rows);
    const GroupRow high(old.high + first, sums + first * 4 + 2, added, to.x, to.moments,
                        lane_row + 8, lane_column + first * 8, to.rows);
#pragma unroll
    for (int i = 0; i < kGroupBlocks; ++i) {
      writer.put(first + i, low.packed(i), high.packed(i));
    }
  }
  writer.store<N>(to.out, row, column, to.rows);
}

extern "C" __global__ void __cluster_dims__(CLUSTER* SPLIT, 1, 1)
    __launch_bounds__(Shape::kThreads, 1)
        gemm_residual_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap w,
                           const float* bias, const __grid_constant__ TensorMap x, float* new_x,
                           T* out, float* moments, int rows) {
  const Output to{new_x, out, moments, rows};
  Residual residuals[kPasses];
  run_product<Pipeline, Writer>(
      a, w, Tiles(rows), [](const TilePosition& tile, int part) { return tile.column + part * BN; },
      [&](const TilePosition& tile, int row) {
        if constexpr (Pipeline::kExtraSlots == 0) {  // not through the ring
          wait_for_kernels_before();
          const int share = SPLIT > 1 ? cluster_rank() * Shape::kOutColumns : 0;
          if (SPLIT > 1 && tile.column + share >= N) return;  // behind the matrix
#pragma unroll
          for (int pass = 0; pass < kPasses; ++pass) {
            residuals[pass].load(new_x, row + pass_row(pass),
                                 tile.column + share + pass_column(pass), rows);
          }
        }
      },
      [&](const Writer& writer, const TilePosition& tile, int row, const Pipeline::Sums& sums) {
        if (SPLIT > 1 && tile.column >= N) return;  // a share behind the matrix
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
          const int first = pass % Writer::kPasses * Writer::kBlocks * 4;
          store_pass(writer, residuals[pass], &sums[pass / Writer::kPasses][first], bias, to,
                     row + pass_row(pass), tile.column + pass_column(pass));
        }
      },
      Extra{x, residuals});
}
