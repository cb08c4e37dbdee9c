// The product of BM rows of a and BN rows of w, as a block computes it: slabs of both stream
// through a ring of STAGES slots in shared memory into the warps' registers; the finished sums are
// left in shared memory as fp32, so that the epilogue is a small loop over rows instead of
// unrolled code over fragments.
#pragma once

#include "dependent_launch.cuh"
#include "warp_tile.cuh"

/// A block of (BM / WM) x (BN / WN) warps.
template <int BM, int BN, int WM, int WN, int STAGES>
struct TileShape {
  static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles must divide the block's tile");
  enum : int { kRows = BM, kColumns = BN, kWarpRows = WM, kWarpColumns = WN };
  enum : int { kStages = STAGES };
  enum : int { kThreads = BM / WM * (BN / WN) * 32 };
  enum : int { kPitch = BN + 8 };  ///< floats from row to row of the finished tile
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
/// tile's first row, w at row n0 of the first part.
/// Shared memory: max(kStages * (kRows + kColumns) * 128, kRows * kPitch * 4) bytes.
/// Waits for the kernels before. Returns the tile, visible to the whole block.
template <class Elem, class Shape, int N, int K, int Parts>
__device__ inline const float* product_tile(const Elem* a, int a_rows, const Elem* w, int n0,
                                            unsigned char* shared) {
  constexpr int kSlab = kSlabBytes / sizeof(Elem);
  constexpr int kSlabs = (K + kSlab - 1) / kSlab;
  constexpr int kPartRows = Shape::kColumns / Parts;
  constexpr int kChunk = 16 / sizeof(Elem);
  constexpr u32 kBytesA = Shape::kRows * kSlabBytes, kBytesW = Shape::kColumns * kSlabBytes;
  constexpr bool kRaggedN = N % kPartRows != 0, kRaggedK = K % kSlab != 0;

  const u32 ring = shared_address(shared);
  const auto slot = [&](int stage) { return ring + stage * (kBytesA + kBytesW); };

  enum : long long { kPitch = static_cast<long long>(K) * sizeof(Elem) };
  TileCopy<Shape::kRows, kSlabChunks, Shape::kThreads, kPitch> copy_a;
  TileCopy<kPartRows, kSlabChunks, Shape::kThreads, kPitch> copy_w[Parts];
  const auto is_inside = [&](int slab) {
    return !kRaggedK || slab * kSlab + copy_a.chunk() * kChunk < K;
  };
  const auto start_a = [&](int slab, u32 to) {
    const bool inside = is_inside(slab);
    copy_a.start(to, a + slab * kSlab, [&](int row) { return row < a_rows && inside; });
  };
  const auto start_w = [&](int slab, u32 to) {
    const bool inside = is_inside(slab);
#pragma unroll
    for (int part = 0; part < Parts; ++part) {
      copy_w[part].start(to + kBytesA + part * kPartRows * kSlabBytes,
                         w + part * static_cast<long long>(N) * K + slab * kSlab,
                         [&](int row) { return (!kRaggedN || n0 + row < N) && inside; });
    }
  };
  const auto start = [&](int slab, u32 to) {
    start_a(slab, to);
    start_w(slab, to);
  };
  const auto finish = [&](u32 to) {
    copy_a.finish(to);
#pragma unroll
    for (int part = 0; part < Parts; ++part) {
      copy_w[part].finish(to + kBytesA + part * kPartRows * kSlabBytes);
    }
  };

#if __CUDA_ARCH__ >= 900  // no kernel writes weights
#pragma unroll 1
  for (int slab = 0; slab < Shape::kStages && slab < kSlabs; ++slab) start_w(slab, slot(slab));
  wait_for_kernels_before();
#endif
#pragma unroll 1
  for (int slab = 0; slab < Shape::kStages; ++slab) {
    if (slab < kSlabs) {
#if __CUDA_ARCH__ >= 900
      start_a(slab, slot(slab));
#else
      start(slab, slot(slab));
      finish(slot(slab));
#endif
    }
    commit_copies();
  }
  wait_for_copies<Shape::kStages - 1>();
  __syncthreads();

  const int warp = threadIdx.x / 32;
  const int m = warp / (Shape::kColumns / Shape::kWarpColumns) * Shape::kWarpRows;
  const int n = warp % (Shape::kColumns / Shape::kWarpColumns) * Shape::kWarpColumns;
  const auto slabs = [&](int stage) {
    return Slabs{slot(stage) + m * kSlabBytes, slot(stage) + kBytesA + n * kSlabBytes};
  };
  WarpTile<Elem, Shape::kWarpRows, Shape::kWarpColumns> sums;
  int stage = 0, filling = -1;  // the slot that is read, and the one whose copy is not finished
#pragma unroll 1
  for (int slab = 0; slab < kSlabs; ++slab) {
    sums.multiply(slabs(stage), [&] {
      if (filling >= 0) finish(slot(filling));
      wait_for_copies<Shape::kStages - 2>();
      __syncthreads();  // the next slab has arrived, and every warp has read this one
      const bool more = slab + Shape::kStages < kSlabs;
      if (more) start(slab + Shape::kStages, slot(stage));
      commit_copies();
      filling = more ? stage : -1;
    });
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }

  // Nothing is on its way and every warp has read the ring: its memory becomes the tile's.
  sums.store(ring + (m * Shape::kPitch + n) * 4, Shape::kPitch);
  __syncthreads();
  return reinterpret_cast<const float*>(shared);
}

/// A block's tile of the product of a [rows, K] and w [Parts * N, K], see product_tile().
struct BlockTile {
  int row, column;    ///< its first, of out
  int rows;           ///< that are inside of a
  const float* sums;  ///< Shape::kPitch floats a row
};
template <class Elem, class Shape, int N, int K, int Parts>
__device__ inline BlockTile block_tile(const Elem* a, const Elem* w, int rows,
                                       unsigned char* shared) {
  constexpr int kColumns = Shape::kColumns / Parts;  // of out
  let_next_kernel_start();
  const TilePosition tile =
      tile_position((rows + Shape::kRows - 1) / Shape::kRows, (N + kColumns - 1) / kColumns);
  const int m0 = tile.row_tile * Shape::kRows, n0 = tile.column_tile * kColumns;
  const int tile_rows = min(Shape::kRows, rows - m0);
  const float* sums =
      product_tile<Elem, Shape, N, K, Parts>(a + static_cast<long long>(m0) * K, tile_rows,
                                             w + static_cast<long long>(n0) * K, n0, shared);
  return {m0, n0, tile_rows, sums};
}
