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
//! param  BN         int   16..256 step 16        tile: columns, divided by CLUSTER
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
// All pointers are aligned to 16 bytes. A tile has C = CLUSTER * BN columns: 32, 64, 96, 128, 192
// or 256, and 128 if blocks split k; rows of one consumer times C <= 12288, for K >= 2048 without
// SPLIT 8192; where x does not come through the ring (product_sm90.cuh) 8192 and 4096. SPLIT:
// CLUSTER is 1, consumers share tiles. STAGES is at least C / 32 divided by 1 + C / BM (rounded
// down), rounded up.
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

/// What this thread adds to in a row of a pass: columns 2t, 2t + 1 of each block of 8.
struct Residual {
  float2 x[Writer::kBlocks];

  /// `row` is this thread's, behind the last it takes that one's; `column` the pass's first.
  __device__ void load(const float* from, int row, int column, int rows) {
    column += threadIdx.x % 4 * 2;
    from += static_cast<long long>(min(row, rows - 1)) * N + column;
#pragma unroll
    for (int block = 0; block < Writer::kBlocks; ++block) {
      if (N % Shape::kOutColumns != 0 && column + block * 8 >= N) break;
      x[block] = *reinterpret_cast<const float2*>(from + block * 8);
    }
  }

  /// The same from boxes of 32 columns each, where `row` and `column` count from the first.
  template <class BoxAddress>
  __device__ void take(const BoxAddress& box_address, int row, int column) {
#pragma unroll
    for (int block = 0; block < Writer::kBlocks; ++block) {
      x[block] = load2_from_box(box_address(column / 32 + block / kGroupBlocks), row,
                                block % kGroupBlocks * 4 + threadIdx.x % 4);
    }
  }
};

/// What the kernel writes to.
struct Output {
  float* x;
  T* out;
  float* moments;
  int rows;
};

constexpr int kGroups = Writer::kBlocks / kGroupBlocks;  ///< of a pass
using RowValues = float[kGroups][2 * kGroupBlocks];      ///< of a row, those of one thread

/// v = old + (sums + bias) of a row. `sums`: this row's two of the first block of 8 columns, which
/// begins at `column`.
__device__ inline void add(const Residual& old, const float* sums, const float* bias, int column,
                           RowValues& v) {
#pragma unroll
  for (int block = 0; block < Writer::kBlocks; ++block) {
    float2 b = make_float2(0, 0);
    if (bias != nullptr && (N % Shape::kOutColumns == 0 || column + block * 8 < N)) {
      b = *reinterpret_cast<const float2*>(bias + column + block * 8 + threadIdx.x % 4 * 2);
    }
    float* values = &v[block / kGroupBlocks][block % kGroupBlocks * 2];
    values[0] = old.x[block].x + (sums[block * 4] + b.x);
    values[1] = old.x[block].y + (sums[block * 4 + 1] + b.y);
  }
}

/// Stores a row and its moments; the pass begins at `column`.
__device__ inline void store_row(const RowValues& v, const float2 (&moments)[kGroups],
                                 const Output& to, long long row, int column) {
  if (row >= to.rows) return;
  const int t = threadIdx.x % 4;
  float* x = to.x + row * N + column + t * 2;
  float* row_moments = to.moments + (row * (N / kMomentColumns) + column / kMomentColumns) * 2;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (N % Shape::kOutColumns != 0 && column + g * kMomentColumns >= N) break;
#pragma unroll
    for (int i = 0; i < kGroupBlocks; ++i) {
      *reinterpret_cast<float2*>(x + g * kMomentColumns + i * 8) =
          make_float2(v[g][2 * i], v[g][2 * i + 1]);
    }
    if (t == 0) *reinterpret_cast<float2*>(row_moments + g * 2) = moments[g];
  }
}

/// One pass over 16 rows of a warp: `row` and `column` are the warp's first. `old(half)` is what is
/// added to in row g, and in row g + 8.
template <class Old>
__device__ inline void store_pass(const Writer& writer, const Old& old, const float* sums,
                                  const float* bias, const Output& to, int row, int column) {
  u32 packed[2][Writer::kBlocks];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    RowValues v;
    add(old(half), sums + half * 2, bias, column, v);
    float2 moments[kGroups];
    group_moments<4>(v, moments);
    store_row(v, moments, to, row + threadIdx.x % 32 / 4 + half * 8, column);
#pragma unroll
    for (int block = 0; block < Writer::kBlocks; ++block) {
      const float* x = &v[block / kGroupBlocks][block % kGroupBlocks * 2];
      packed[half][block] = pack2<T>(x[0] * kResidualUnit<T>, x[1] * kResidualUnit<T>);
    }
  }
#pragma unroll
  for (int block = 0; block < Writer::kBlocks; ++block) {
    writer.put(block, packed[0][block], packed[1][block]);
  }
  writer.store<N>(to.out, row, column, to.rows);
}

extern "C" __global__ void __cluster_dims__(CLUSTER* SPLIT, 1, 1)
    __launch_bounds__(Shape::kThreads, 1)
        gemm_residual_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap w,
                           const float* bias, const __grid_constant__ TensorMap x, float* new_x,
                           T* out, float* moments, int rows) {
  const Output to{new_x, out, moments, rows};
  Residual early[kPasses][2];  // what does not come through the ring
  const int lane_row = threadIdx.x % 32 / 4;
  run_product<Pipeline, Writer>(
      a, w, Tiles(rows), [](const TilePosition& tile, int part) { return tile.column + part * BN; },
      [&](const TilePosition& tile, int row) {
        if constexpr (Pipeline::kExtraSlots == 0) {
          wait_for_kernels_before();
          const int share = SPLIT > 1 ? cluster_rank() * Shape::kOutColumns : 0;
          if (SPLIT > 1 && tile.column + share >= N) return;  // behind the matrix
#pragma unroll
          for (int i = 0; i < 2 * kPasses; ++i) {
            early[i / 2][i % 2].load(new_x, row + pass_row(i / 2) + lane_row + i % 2 * 8,
                                     tile.column + share + pass_column(i / 2), rows);
          }
        }
      },
      [](int) {},
      [&](const Writer& writer, const TilePosition& tile, int row, const Pipeline::Sums& sums,
          const auto& box_address) {
        if (SPLIT > 1 && tile.column >= N) return;  // a share behind the matrix
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
          const auto old = [&](int half) {
            Residual x = early[pass][half];
            if constexpr (Pipeline::kExtraSlots > 0) {
              x.take(box_address, row - tile.row + pass_row(pass) + lane_row + half * 8,
                     pass_column(pass));
            }
            return x;
          };
          const int first = pass % Writer::kPasses * Writer::kBlocks * 4;
          store_pass(writer, old, &sums[pass / Writer::kPasses][first], bias, to,
                     row + pass_row(pass), tile.column + pass_column(pass));
        }
      },
      [&](const TilePosition& tile, int box, u32 to, u32 barrier) {
        load_box(to, x, tile.row, tile.column + box * 32, barrier);
      });
}
