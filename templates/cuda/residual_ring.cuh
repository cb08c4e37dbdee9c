// A way of the residual stream to consumers that add to it and take tiles in turn, in products for
// Hopper: boxes of 64 rows x 64 columns, of both parts, in a ring of slots of their own. A thread
// of its own fetches them, tile after tile; a slot is filled again as soon as its box has been
// taken, so that the next tile's x arrives while this one is finished.
#pragma once

#include "product_sm90.cuh"
#include "residual.cuh"

template <class Shape, int SpinLimit>
class ResidualRing {
 public:
  enum : int { kBoxes = Shape::kColumns / 64, kBlocks = Shape::kRows / 64 };
  enum : int { kSlots = kBoxes * kBlocks };  ///< those of a tile
  enum : u32 { kBoxBytes = 64 * 128, kSlotBytes = 2 * kBoxBytes };
  enum : u32 { kBytes = kSlots * kSlotBytes + 1024 };  ///< with the barriers

  /// `shared`: kBytes, aligned to 1,024.
  __device__ explicit ResidualRing(u32 shared) : shared_(shared) {}

  /// Makes the barriers; publish_barriers() follows.
  __device__ void init() const {
    for (int slot = 0; slot < kSlots; ++slot) {
      init_barrier(full(slot), 1);
      init_barrier(empty(slot), 4);  // each warp of a consumer
    }
  }

  /// The work of the thread that fetches; both maps have boxes of 64 rows and columns.
  template <class Tiles>
  __device__ void fetch(const Tiles& tiles, const TensorMap& x, const TensorMap& x_low) const {
    wait_for_kernels_before();
    TilePosition tile;
    for (int index = 0; tiles.get(index, tile); ++index) {
#pragma unroll 1
      for (int slot = 0; slot < kSlots; ++slot) {
        const int row = tile.row + slot % kBlocks * 64, column = tile.column + slot / kBlocks * 64;
        wait_phase<SpinLimit>(empty(slot), index & 1 ^ 1);
        expect_bytes(full(slot), kSlotBytes);
        load_box(upper(slot), x, row, column, full(slot));
        load_box(upper(slot) + kBoxBytes, x_low, row, column, full(slot));
      }
    }
  }

  /// Waits for all boxes of a tile, before its consumer passes the turn: a barrier knows but the
  /// parity of its phase, so nobody may wait for a phase before the one before has ended.
  __device__ void wait(int tile_index) const {
    for (int slot = 0; slot < kSlots; ++slot) wait_phase<SpinLimit>(full(slot), tile_index & 1);
  }

  /// After wait(): loads box `box` of rows [64 * block, + 64) of the tile, of the calling thread's
  /// two rows (ThreadElements) 8 elements of each 32 columns, and frees the slot. Behind the matrix
  /// there are zeros, which may join to NaNs.
  template <int Groups>
  __device__ void take(int box, int block, SplitEight (&low_row)[Groups],
                       SplitEight (&high_row)[Groups]) const {
    const int slot = box * kBlocks + block;
#pragma unroll
    for (int group = 0; group < Groups; ++group) {
      low_row[group] = load(slot, ThreadElements<32>::row(0), group);
      high_row[group] = load(slot, ThreadElements<32>::row(1), group);
    }
    fence_async_proxy();  // else a copy could overwrite what is still to be read
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty(slot));
  }

 private:
  __device__ SplitEight load(int slot, int row, int group) const {
    const int chunk = group * 4 + threadIdx.x % 4;
    return {load_chunk(upper(slot), row, chunk), load_chunk(upper(slot) + kBoxBytes, row, chunk)};
  }
  __device__ u32 upper(int slot) const { return shared_ + slot * kSlotBytes; }
  __device__ u32 full(int slot) const { return upper(kSlots) + slot * 16; }
  __device__ u32 empty(int slot) const { return full(slot) + 8; }

  u32 shared_;
};
