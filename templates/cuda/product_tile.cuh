// The product of BM rows of a and BN rows of w, as a block computes it: slabs of both stream
// through a ring of STAGES slots in shared memory into the warps' registers; the finished sums are
// left in shared memory as fp32, so that the epilogue is a small loop over rows instead of
// unrolled code over fragments.
#pragma once

#include "warp_tile.cuh"

/// A block of (BM / WM) x (BN / WN) warps.
template <int BM, int BN, int WM, int WN, int STAGES>
struct TileShape {
  static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles must divide the block's tile");
  static constexpr int kRows = BM, kColumns = BN, kWarpRows = WM, kWarpColumns = WN;
  static constexpr int kStages = STAGES;
  static constexpr int kThreads = BM / WM * (BN / WN) * 32;
  static constexpr int kPitch = BN + 8;  ///< floats from row to row of the finished tile
};

/// Which tile a block of the one-dimensional grid works on. Blocks with neighbouring numbers run
/// at the same time; groups of 8 row tiles walk the columns together, so that what they read of a
/// and of w stays in the L2 cache.
struct TilePosition {
  int row_tile, column_tile;
};
__device__ inline TilePosition tile_position(int row_tiles, int column_tiles) {
  constexpr int kGroupRows = 8;
  const int group = blockIdx.x / (kGroupRows * column_tiles);
  const int inside = blockIdx.x - group * kGroupRows * column_tiles;
  const int rows = min(kGroupRows, row_tiles - group * kGroupRows);
  return {group * kGroupRows + inside % rows, inside / rows};
}

/// w of `Parts` equal parts, N rows each, of which the tile takes kColumns / Parts rows: column c
/// of the tile is row n0 + c % (kColumns / Parts) of part c / (kColumns / Parts). Rows of a from
/// a_rows on and rows of a part from N - n0 on count as zeros. Both point at row starts: a at the
/// tile's first row, w at the first row of the first part.
/// Shared memory: max(kStages * (kRows + kColumns) * 128, kRows * kPitch * 4) bytes.
/// Returns the tile, visible to the whole block.
template <class Elem, class Shape, int N, int K, int Parts>
__device__ inline float* product_tile(const Elem* a, int a_rows, const Elem* w, int n0,
                                      unsigned char* shared) {
  constexpr int kSlab = kSlabBytes / sizeof(Elem);
  constexpr int kSlabs = (K + kSlab - 1) / kSlab;
  constexpr int kPartRows = Shape::kColumns / Parts;
  constexpr int kChunk = 16 / sizeof(Elem);
  constexpr u32 kBytesA = Shape::kRows * kSlabBytes, kBytesW = Shape::kColumns * kSlabBytes;
  constexpr bool kRaggedN = N % kPartRows != 0, kRaggedK = K % kSlab != 0;

  const u32 ring = shared_address(shared);
  const auto slot = [&](int stage) { return ring + stage * (kBytesA + kBytesW); };

  TileCopy<Shape::kRows, kSlabChunks, Shape::kThreads> copy_a;
  TileCopy<Shape::kColumns, kSlabChunks, Shape::kThreads> copy_w;
  const auto start = [&](int slab, u32 to) {
    copy_a.start(to, [&](int row, int chunk) {
      const int k = slab * kSlab + chunk * kChunk;
      return Chunk{a + static_cast<long long>(row) * K + k, row < a_rows && (!kRaggedK || k < K)};
    });
    copy_w.start(to + kBytesA, [&](int row, int chunk) {
      const int k = slab * kSlab + chunk * kChunk, n = n0 + row % kPartRows;
      return Chunk{w + (static_cast<long long>(row / kPartRows) * N + n) * K + k,
                   (!kRaggedN || n < N) && (!kRaggedK || k < K)};
    });
  };
  const auto finish = [&](u32 to) {
    copy_a.finish(to);
    copy_w.finish(to + kBytesA);
  };

#pragma unroll
  for (int stage = 0; stage < Shape::kStages - 1; ++stage) {
    if (stage < kSlabs) {
      start(stage, slot(stage));
      finish(slot(stage));
    }
    commit_copies();
  }

  const int warp = threadIdx.x / 32;
  const int m = warp / (Shape::kColumns / Shape::kWarpColumns) * Shape::kWarpRows;
  const int n = warp % (Shape::kColumns / Shape::kWarpColumns) * Shape::kWarpColumns;
  WarpTile<Elem, Shape::kWarpRows, Shape::kWarpColumns> sums;
  int read = 0, write = Shape::kStages - 1;  // slots of the ring
#pragma unroll 1
  for (int slab = 0; slab < kSlabs; ++slab) {
    wait_for_copies<Shape::kStages - 2>();
    __syncthreads();  // this slab has arrived, and no warp still reads the slot written next
    const int next = slab + Shape::kStages - 1;
    if (next < kSlabs) start(next, slot(write));
    commit_copies();
    sums.multiply(slot(read) + m * kSlabBytes, slot(read) + kBytesA + n * kSlabBytes);
    if (next < kSlabs) finish(slot(write));
    read = read + 1 == Shape::kStages ? 0 : read + 1;
    write = write + 1 == Shape::kStages ? 0 : write + 1;
  }
  wait_for_copies<0>();
  __syncthreads();  // the ring's memory becomes the tile's

  float* tile = reinterpret_cast<float*>(shared);
  sums.store(tile + m * Shape::kPitch + n, Shape::kPitch);
  __syncthreads();
  return tile;
}
