// x += a * w^T + bias, and moments of the rows of x, as gemm_residual, for 16-bit elements on
// Hopper. product_sm90.cuh says how the product works. Of each group of 32 columns that moments
// describe, 4 neighbouring threads have 8 neighbours each, so that x comes and goes 16 bytes at a
// time.
//
//! entry  gemm_residual_sm90
//! launch dependent
//! launch cluster CLUSTER*SPLIT
//! param  T          word  bf16 fp16              elements of a, w and x
//! param  N          int   32..16777216 step 32   columns of x
//! param  K          int   8..16777216 step 8     columns of a and w
//! param  BM         int   64..128 step 64        tile: rows
//! param  BN         int   32..256 step 32        tile: columns, divided by CLUSTER
//! param  CLUSTER    int   1..2                   blocks that share what they fetch of w
//! param  CONSUMERS  int   1..2                   warpgroups that multiply
//! param  SHARED     word  no yes                 yes: they share the rows of each tile
//! param  X_RING     word  no yes                 yes: x has a place of its own; for turns only
//! param  SPLIT      int   1..4                   blocks that split k: 1; 2 or 4 if K >= 2048
//! param  STAGES     int   2..24                  slabs of 64 k in flight
//! param  SPIN_LIMIT int   0..1000000000          0, or tries after which a wait traps
//!
//! arg    a          map T rows K BM 64           [rows, K] T
//! arg    w          map T N K BN 64 by_thread 32 [N, K] T
//! arg    bias       ptr                          [N] fp32, or null: none is added
//! arg    x          map T rows N 64 64           [rows, N] T, the upper part (residual.cuh)
//! arg    x_low      map T rows N 64 64           [rows, N] T, the lower part
//! arg    new_x      ptr                          x, updated
//! arg    new_x_low  ptr                          x_low, updated
//! arg    moments    ptr                          [N / 32, R8, 2] fp32, written: moments.cuh
//! arg    rows       i32                          may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes. A tile has C = CLUSTER * BN columns: 32, 64, 96, 128, 192
// or 256, with CLUSTER 2 at least 128, for BM 64 at least 192; if blocks split k 64 (SPLIT 2) or
// 128. Rows of one consumer times C <= 16384, for K >= 2048 without SPLIT 12288; where x comes
// neither through the ring of slabs (product_sm90.cuh) nor X_RING 8192.
// SPLIT: CLUSTER is 1, consumers share tiles. X_RING, for many tiles a block: two consumers take
// turns (SHARED is no), and C is a multiple of 64. Else STAGES is at least twice C / 64 (rounded
// up), divided by 1 + C / BM (rounded down), rounded up. Launch and dynamic shared memory: as
// gemm_sm90; with X_RING BM * C * 4 + 1024 bytes more.
#include "moments.cuh"
#include "product_sm90.cuh"
#include "residual_ring.cuh"

using Shape = ProductShape<BM, BN, CLUSTER, CLUSTER, CONSUMERS, SHARED, SPLIT, STAGES>;
/// Boxes of 64 columns of each part of x that a tile takes.
enum : int { kPartBoxes = (Shape::kOutColumns + 63) / 64 };
using Pipeline =
    ProductPipeline<T, Shape, K, SPIN_LIMIT, kMomentColumns, X_RING ? 0 : 2 * kPartBoxes>;
/// Whether those who finish a tile load x before its product.
enum : bool { kIsEarly = Pipeline::kExtraSlots == 0 && !X_RING };
using Mine = ThreadElements<kMomentColumns>;
using Tiles = TileList<Shape, Shape::kColumns, N>;
enum : int { kBlocks = Shape::kGroupRows / 64 };
static_assert(BN % kMomentColumns == 0, "a box of w holds whole groups");
static_assert(!X_RING || (Shape::kTurns == 2 && Shape::kColumns % 64 == 0));

/// A pass finishes so many groups of two rows: all where a thread has at most 64 sums, else three
/// or two, for which there are registers; those of a box where x comes box by box.
enum : int { kTileGroups = Shape::kOutColumns / kMomentColumns };
enum : int {
  kGroups = X_RING                       ? 2
            : kTileGroups * kBlocks <= 4 ? kTileGroups
            : kTileGroups % 3 == 0       ? 3
                                         : 2
};
enum : int { kPasses = kTileGroups / kGroups };
static_assert(kTileGroups % kGroups == 0, "passes are equal");

__device__ inline bool has_group(int tile_column, int group) {
  return N % Shape::kOutColumns == 0 || tile_column + group * kMomentColumns < N;
}

/// What this thread adds to in the groups of a pass: 8 elements of each.
struct Residual {
  SplitEight x[kGroups];

  /// `row` is this thread's, behind the last it takes that one's.
  __device__ void load(const ResidualStream<T>& from, int row, int tile_column, int pass,
                       int rows) {
    const long long at = static_cast<long long>(min(row, rows - 1)) * N + tile_column;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int group = pass * kGroups + g;
      if (has_group(tile_column, group)) x[g] = from.load(at + Mine::column(group));
    }
  }

  /// The same from boxes; `row` counts from the tile's first. Behind the matrix boxes hold zeros,
  /// which may join to NaNs; they are not stored.
  template <class BoxAddress>
  __device__ void take(const BoxAddress& box_address, int row, int pass) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int group = pass * kGroups + g, chunk = group % 2 * 4 + threadIdx.x % 4;
      x[g] = {load_chunk(box_address(group / 2), row, chunk),
              load_chunk(box_address(kPartBoxes + group / 2), row, chunk)};
    }
  }
};

/// What goes on beside the product with X_RING.
struct FetchX {
  using Ring = ResidualRing<Shape, SPIN_LIMIT>;
  enum : u32 { kBytes = Ring::kBytes };
  Tiles tiles;
  const TensorMap &x, &x_low;

  __device__ static Ring ring() { return Ring(block_shared()); }
  __device__ void init() const { ring().init(); }
  __device__ void fetch() const { ring().fetch(tiles, x, x_low); }
};

/// Adds the bias, of the columns of a tile, to all sums of this thread.
__device__ inline void add_bias(Pipeline::Sums& sums, const float* bias, int tile_column) {
#pragma unroll
  for (int group = 0; group < kTileGroups; ++group) {
    if (!has_group(tile_column, group)) break;
    const Float8 offset = load8(bias + tile_column + Mine::column(group));
#pragma unroll
    for (int i = 0; i < 2 * kBlocks * 8; ++i) {
      sums[i / 16][Mine::sum(group, i / 8 % 2, i % 8)] += offset.v[i % 8];
    }
  }
}

/// Where results go.
struct Output {
  ResidualStream<T> x;
  float2* moments;
  int moment_rows;

  /// The same from a row and a column on; of the columns of a group, this thread's. All of x in a
  /// tile is at constant distances from there.
  __device__ Output at(long long row, int column) const {
    const long long element = row * N + (column + Mine::column(0));
    return {{x.upper + element, x.lower + element},
            moments + (static_cast<long long>(column / kMomentColumns) * moment_rows + row),
            moment_rows};
  }
};

/// Stores one pass over a row, `down` rows below `to`, and its moments, kGroups of each.
__device__ inline void store_row(const float (*x)[8], const float2* moments, const Output& to,
                                 int down, int tile_column, int pass) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int group = pass * kGroups + g;
    if (!has_group(tile_column, group)) break;
    to.x.store(down * N + group * kMomentColumns, split8<T>(x[g]));
  }
  // Each lane has all moments of its row and stores those of one group.
  const int lane = threadIdx.x % 4;
  float2 mine = moments[0];
#pragma unroll
  for (int g = 1; g < kGroups; ++g) {
    if (lane == g) mine = moments[g];
  }
  static_assert(kGroups <= 4, "four lanes store them");
  if (lane < kGroups && has_group(tile_column, pass * kGroups + lane)) {
    to.moments[static_cast<long long>(pass * kGroups + lane) * to.moment_rows + down] = mine;
  }
}

/// Finishes one pass over both rows that this thread has of 64, in step: x = old + sums. `to` is
/// the thread's first row of the tile; these are `down` and `down + 8` rows below it, of the
/// `rows_left` that exist from there on.
template <int Count>
__device__ inline void finish_rows(const Residual (&old)[2], const float (&sums)[Count],
                                   const Output& to, int down, int rows_left, int tile_column,
                                   int pass) {
  float x[2 * kGroups][8];
#pragma unroll
  for (int i = 0; i < 2 * kGroups; ++i) {
    const int half = i / kGroups, g = i % kGroups;
    const Float8 before = join8<T>(old[half].x[g]);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      x[i][j] = before.v[j] + sums[Mine::sum(pass * kGroups + g, half, j)];
    }
  }
  float2 moments[2 * kGroups];
  group_moments<4>(x, moments);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = down + half * 8;
    if (row < rows_left) {
      store_row(x + half * kGroups, moments + half * kGroups, to, row, tile_column, pass);
    }
  }
}

extern "C" __global__ void LAYA_CLUSTER __launch_bounds__(Shape::kThreads, 1)
    gemm_residual_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap w,
                       const float* bias, const __grid_constant__ TensorMap x,
                       const __grid_constant__ TensorMap x_low, T* new_x, T* new_x_low,
                       float* moments, int rows) {
  const Output to{{new_x, new_x_low}, reinterpret_cast<float2*>(moments), moment_rows(rows)};
  const auto side = [&] {
    if constexpr (X_RING) {
      return FetchX{Tiles(rows), x, x_low};
    } else {
      return NoSide();
    }
  };
  Residual early[kBlocks][kPasses][2];  // what is added to; or it is taken pass by pass
  run_product<Pipeline>(
      a, w, Tiles(rows), [](const TilePosition& tile, int part) { return tile.column + part * BN; },
      [&](const TilePosition& tile, int row) {
        if constexpr (kIsEarly) {
          wait_for_kernels_before();
          const int column = tile.column + (SPLIT > 1 ? cluster_rank() * Shape::kOutColumns : 0);
          if (SPLIT > 1 && column >= N) return;  // a share behind the matrix
#pragma unroll
          for (int i = 0; i < kBlocks * kPasses * 2; ++i) {
            const int block = i / (kPasses * 2), pass = i / 2 % kPasses, half = i % 2;
            early[block][pass][half].load(to.x, row + block * 64 + Mine::row(half), column, pass,
                                          rows);
          }
        }
      },
      [](const TilePosition& tile, int) {
        if constexpr (X_RING) FetchX::ring().wait(tile.index);
      },
      [&](const TilePosition& tile, int row, Pipeline::Sums& sums, const auto& box_address) {
        if (SPLIT > 1 && tile.column >= N) return;  // a share behind the matrix
        if (bias != nullptr) add_bias(sums, bias, tile.column);
        const int first = row + Mine::row(0);
        const Output mine = to.at(first, tile.column);
#pragma unroll
        for (int i = 0; i < kBlocks * kPasses; ++i) {
          const int block = i % kBlocks, pass = i / kBlocks;
          Residual(&old)[2] = early[block][pass];
          if constexpr (Pipeline::kExtraSlots > 0) {
            const int in_tile = first - tile.row + block * 64;
            old[0].take(box_address, in_tile, pass);
            old[1].take(box_address, in_tile + 8, pass);
          } else if constexpr (X_RING) {
            FetchX::ring().take(pass, block, old[0].x, old[1].x);
          }
          finish_rows(old, sums[block], mine, block * 64, rows - first, tile.column, pass);
        }
      },
      [&](const TilePosition& tile, int box, const auto& copy) {
        const bool is_upper = box < kPartBoxes;
        const int column = tile.column + (is_upper ? box : box - kPartBoxes) * 64;
#pragma unroll
        for (int row = 0; row < BM; row += 64) {
          copy(is_upper ? x : x_low, tile.row + row, column, row * 128);
        }
      },
      side());
}
