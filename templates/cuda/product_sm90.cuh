// The matrix product of the templates gemm*_sm90, all but the epilogue: blocks
// stay for the whole product and work through a list of tiles. One thread of the last warpgroup,
// the producer, copies slabs of 64 k of both operands into a ring of slots. The consumers, the
// other warpgroups, either take tiles in turn, so that one multiplies while the other finishes and
// stores its tile; slots are filled and freed in the order of the tiles. Or they share the rows of
// each tile, which is faster where a block has one tile only.
//
// A cluster of blocks works on tiles below each other, in step: each block fetches its own rows of
// a, and its share of w for all blocks of the cluster, and of what their epilogues read.
//
// The order of additions depends on K alone, in every tile shape: chunks of k, each summed in one
// chain in ascending order, 16 k at a time, and then added to each other in that order. There is
// one chunk for K < 2048, else there are four. So the blocks of a cluster may split k: each sums
// one or two chunks of the same tile, sends every block its share of the columns and finishes a
// share itself.
#pragma once

#include "dependent_launch.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

/// Chunks of k that are summed by themselves.
__device__ constexpr int product_chunks(int k) {
  return k < 2048 ? 1 : 4;
}

/// A tile is BM rows x PARTS * BN columns; w is fetched in PARTS boxes of BN rows. CLUSTER: blocks
/// that share w. SHARED: consumers share each tile. SPLIT: blocks that split k.
template <int BM, int BN, int PARTS, int CLUSTER, int CONSUMERS, bool SHARED, int SPLIT, int STAGES>
struct ProductShape {
  enum : int { kTurns = SHARED ? 1 : CONSUMERS };  ///< consumers that take tiles in turn
  enum : int { kSharers = CONSUMERS / kTurns };    ///< consumers of one tile
  enum : int { kGroupRows = BM / kSharers };       ///< rows of one consumer
  static_assert(kGroupRows % 64 == 0, "a warpgroup multiplies 64 rows at a time");
  static_assert(BN % 8 == 0, "boxes of w begin at multiples of 1,024 bytes");
  static_assert(PARTS % CLUSTER == 0, "the blocks of a cluster fetch equally many parts of w");
  static_assert(SPLIT == 1 || (CLUSTER == 1 && kTurns == 1),
                "a split tile is all that a block has");
  static_assert(PARTS * BN % (8 * SPLIT) == 0, "blocks finish equal shares of the columns");
  enum : int { kRows = BM, kPartRows = BN, kParts = PARTS, kColumns = PARTS * BN };
  enum : int { kOutColumns = kColumns / SPLIT };  ///< that a block finishes
  enum : int { kCluster = CLUSTER, kConsumers = CONSUMERS, kStages = STAGES };
  enum : int { kSplit = SPLIT };
  enum : int { kThreads = (CONSUMERS + 1) * 128 };
  enum : u32 { kBytesA = BM * 128, kPartBytes = BN * 128 };
  enum : u32 { kSlotBytes = kBytesA + PARTS * kPartBytes };
};

/// Which elements of a product a thread holds, of each 64 rows: two rows, and of each Group columns
/// Count neighbours, since the map of w is by_thread.
template <int Group>
struct ThreadElements {
  enum : int { kCount = Group / 4 };

  /// Rows g and g + 8 of the 16 of a warp.
  __device__ static int row(int half) {
    return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + half * 8;
  }
  /// First of its columns in a group.
  __device__ static int column(int group) { return group * Group + threadIdx.x % 4 * kCount; }
  /// Number of an element among the thread's sums of 64 rows.
  __device__ static constexpr int sum(int group, int half, int i) {
    return (group * (Group / 8) + i / 2) * 4 + half * 2 + i % 2;
  }
};

/// First row and column of a tile of the output, and its number among those of its block.
struct TilePosition {
  int row, column, index;
};

/// The tiles of one cluster, in order. Groups of kGroup rows of tiles walk the columns together, so
/// that what the clusters read at one time stays in the L2 cache.
template <class Shape, int TileColumns, int N>
class TileList {
 public:
  __device__ explicit TileList(int rows) : rows_(rows) {}

  /// False behind the last tile.
  __device__ bool get(int index, TilePosition& tile) const {
    const int number = (blockIdx.x + index * gridDim.x) / (Shape::kCluster * Shape::kSplit);
    const int groups = (rows_ + kGroupRows - 1) / kGroupRows;
    if (number >= groups * kColumnTiles) return false;
    const int band = number / (kBand * kColumnTiles);
    const int inside = number - band * kBand * kColumnTiles;
    const int height = min(kBand, groups - band * kBand);
    tile.row = (band * kBand + inside % height) * kGroupRows +
               static_cast<int>(blockIdx.x % Shape::kCluster) * Shape::kRows;
    tile.column = inside / height * TileColumns;
    tile.index = index;
    return true;
  }

 private:
  enum : int { kGroupRows = Shape::kRows * Shape::kCluster };
  enum : int { kColumnTiles = (N + TileColumns - 1) / TileColumns };
  enum : int { kBand = 8 };
  int rows_;
};

/// EXTRA: boxes of BM rows and 128 bytes that the epilogue of a tile reads. Unless the ring holds a
/// whole tile or blocks split k, they come through it, behind the slabs: an ordinary load would
/// wait for the copies that are on their way, which takes microseconds. Where blocks share w, each
/// fetches a part of every block's boxes, so that no slot is full before all of them have seen it
/// free: else a warp could free it a second time before another block has the first time, and be
/// counted in its place.
/// GROUP: the map of w is by_thread in groups of so many rows.
template <class Elem, class Tile, int K, int SpinLimit, int GROUP, int EXTRA = 0>
class ProductPipeline {
 public:
  using Shape = Tile;
  using Sums = float[Shape::kGroupRows / 64][Shape::kOutColumns / 2];  ///< of one thread

  enum : int { kSlabs = (K + 63) / 64 };
  enum : int { kChunks = product_chunks(K) };
  enum : int { kChunkSlabs = (kSlabs + kChunks - 1) / kChunks };
  static_assert(Shape::kSplit == 1 || kChunks % Shape::kSplit == 0, "blocks sum whole chunks");
  enum : int { kBlockChunks = kChunks / Shape::kSplit };  ///< of a block that splits k
  enum : int { kBlockSlabs = Shape::kSplit == 1 ? kSlabs : kBlockChunks * kChunkSlabs };
  static_assert(Shape::kPartRows % GROUP == 0, "boxes of w hold whole groups");
  static_assert(Shape::kOutColumns % GROUP == 0, "blocks finish whole groups");
  /// Whether the ring holds the slabs of one tile and nothing else. Blocks that share w
  /// take the general way: they have few slots.
  enum : bool {
    kFitsRing = Shape::kTurns == 1 && Shape::kCluster == 1 && Shape::kStages == kBlockSlabs
  };
  static_assert(!kFitsRing || (Shape::kSplit > 1 ? kBlockChunks : kChunks) == 1,
                "a second chunk would begin at the first slot again");
  enum : int { kProducers = kFitsRing ? 4 : 1 };
  enum : int { kSlotBoxes = Shape::kSlotBytes / Shape::kBytesA };
  enum : int {
    kExtraSlots = kFitsRing || Shape::kSplit > 1 ? 0 : (EXTRA + kSlotBoxes - 1) / kSlotBoxes
  };
  static_assert(kExtraSlots <= Shape::kStages, "a consumer waits for all boxes at once");
  enum : int { kLastSlotBoxes = EXTRA - (kExtraSlots - 1) * kSlotBoxes };
  static_assert(kExtraSlots == 0 ||
                    (kSlotBoxes >= Shape::kCluster && kLastSlotBoxes >= Shape::kCluster),
                "each block that shares w fetches a box of each slot");
  enum : int { kTileSlots = kSlabs + kExtraSlots };

  /// Shared memory: the slots, what the blocks that split k send each other, the barriers.
  enum : u32 {
    kExchangeBytes = Shape::kSplit == 1 ? 0 : 4 * kBlockChunks * Shape::kRows * Shape::kColumns
  };
  enum : u32 {
    kBytes =
        Shape::kStages * (Shape::kSlotBytes + 16) + (Shape::kSplit > 1 ? kExchangeBytes + 16 : 0)
  };

  /// `shared`: kBytes, aligned to 1,024.
  __device__ explicit ProductPipeline(u32 shared) : ring_(shared) {}

  /// Makes the barriers, by the first producer, before sync().
  __device__ void init() const {
    for (int i = 0; i < Shape::kStages; ++i) {
      init_barrier(full(i), 1);
      // Each warp that reads the slot, in each block.
      init_barrier(empty(i), 4 * Shape::kSharers * Shape::kCluster);
    }
    if constexpr (Shape::kSplit > 1) init_barrier(exchanged(), 1);
    publish_barriers();
    fence_async_proxy();
  }

  /// By all threads; returns when the whole cluster is ready.
  __device__ static void sync() {
    if constexpr (Shape::kCluster * Shape::kSplit > 1) {
      sync_cluster();
    } else {
      __syncthreads();
    }
  }

  /// Starts the copies of w for one producer's slots of the first tile, before or after sync();
  /// after it where blocks share w. They need not wait for kernels before: none writes weights.
  /// `w_row(tile, part)` is the row of w where a part begins, a multiple of GROUP.
  template <class Tiles, class WRow>
  __device__ void load_first_weights(int producer, const TensorMap& w, const Tiles& tiles,
                                     const WRow& w_row) {
    TilePosition tile;
    if (!tiles.get(0, tile)) return;
#pragma unroll 1
    for (int slot = producer; slot < min(slabs(), Shape::kStages); slot += kProducers) {
      load_w(slot, w, tile, slot, w_row);
    }
  }

  /// The work of one producer, a thread, after load_first_weights().
  /// `load_extra(tile, box, copy)` calls copy(map, row, column, offset) for the parts of an extra
  /// box. Lets the next kernel start once the slabs of the first tile are on their way.
  template <class Tiles, class WRow, class LoadExtra>
  __device__ void produce(int producer, const TensorMap& a, const TensorMap& w, const Tiles& tiles,
                          const WRow& w_row, const LoadExtra& load_extra) {
    const int first_slab = this->first_slab(), slabs = this->slabs();
    TilePosition tile;
    int ahead = min(slabs, Shape::kStages);  // slabs whose part of w is on its way
    slot_ = producer;
    wait_for_kernels_before();
    for (int index = 0; tiles.get(index, tile); ++index) {
      if constexpr (kFitsRing) slot_ = producer, parity_ = index & 1;
#pragma unroll 1
      for (int slab = producer; slab < slabs; slab += kProducers) {
        if (slab >= ahead) {
          wait_phase<SpinLimit>(empty(slot_), parity_ ^ 1);
          load_w(slot_, w, tile, slab, w_row);
        }
        load_box(slot_address(slot_), a, tile.row, (first_slab + slab) * 64, full(slot_));
        if constexpr (kFitsRing) {
          slot_ += kProducers;
        } else {
          next_slot();
        }
      }
      if (index == 0) let_next_kernel_start(), ahead = 0;
#pragma unroll 1
      for (int first = 0; first < kExtraSlots * kSlotBoxes; first += kSlotBoxes, next_slot()) {
        wait_phase<SpinLimit>(empty(slot_), parity_ ^ 1);
        load_extra_slot(tile, first, min(kSlotBoxes, EXTRA - first), load_extra);
      }
    }
    if constexpr (Shape::kCluster > 1) wait_for_free_slots();
  }

  /// The work of one consumer, a warpgroup: `begin_tile(tile, first_row)` comes before the product
  /// of the rows from first_row on, `prepare(tile, first_row)` while its last part is being
  /// computed; `store_tile(tile, first_row, sums, box_address)` gets its sums, which it may change,
  /// and where it finds the extra boxes: box_address(box).
  template <class Tiles, class BeginTile, class Prepare, class StoreTile>
  __device__ void consume(const Tiles& tiles, const BeginTile& begin_tile, const Prepare& prepare,
                          const StoreTile& store_tile) {
    const int group = warp_index() / 4;
    const int turn = group % Shape::kTurns, row = group / Shape::kTurns * Shape::kGroupRows;
    Sums sums;
    TilePosition tile;
    advance(turn * kTileSlots);
    for (int index = turn; tiles.get(index, tile); index += Shape::kTurns) {
      begin_tile(tile, tile.row + row);
      if (index > 0) wait_for_turn(turn);
      if constexpr (Shape::kSplit > 1) {
        multiply_split_tile(row, tile, sums, [&] { prepare(tile, tile.row + row); });
      } else {
        multiply_tile(row, sums, [&] { prepare(tile, tile.row + row); });
      }
      const int extra = slot_;
      if constexpr (kExtraSlots > 0) wait_for_extra();
      TilePosition next;
      if (tiles.get(index + 1, next)) {
        pass_turn((turn + 1) % Shape::kTurns);
        if constexpr (kFitsRing) {
          for (int slot = 0; slot < Shape::kStages; ++slot) release(slot);
        }
      }
      advance((Shape::kTurns - 1) * kTileSlots);
      store_tile(tile, tile.row + row, sums, [&](int box) {
        return slot_address((extra + box / kSlotBoxes) % Shape::kStages) +
               box % kSlotBoxes * Shape::kBytesA;
      });
      if constexpr (kExtraSlots > 0) release_extra(extra);
    }
  }

 private:
  /// Starts the copies of this block's share of w for a slot.
  template <class WRow>
  __device__ void load_w(int slot, const TensorMap& w, const TilePosition& tile, int slab,
                         const WRow& w_row) const {
    const u32 rank = Shape::kCluster > 1 ? cluster_rank() : 0;
    expect_bytes(full(slot), Shape::kSlotBytes);
#pragma unroll
    for (int i = 0; i < Shape::kParts / Shape::kCluster; ++i) {
      const int part = i * Shape::kCluster + rank;
      const u32 to = slot_address(slot) + Shape::kBytesA + part * Shape::kPartBytes;
      load_part(to, w, w_row(tile, part), (first_slab() + slab) * 64, full(slot));
    }
  }

  /// Starts the copy of a box of w, for all blocks that share it.
  __device__ static void load_part(u32 to, const TensorMap& w, int row, int k, u32 barrier) {
    if constexpr (Shape::kCluster > 1) {
      load_thread_box_to_cluster(to, w, row / GROUP, k, barrier, (1 << Shape::kCluster) - 1);
    } else {
      load_thread_box(to, w, row / GROUP, k, barrier);
    }
  }

  /// At the end: until all slots are free; those never used are. Then no arrival at this block's
  /// barriers and no copy to its memory is still to come, and it may leave.
  __device__ void wait_for_free_slots() {
    for (int i = 0; i < Shape::kStages; ++i, next_slot()) {
      wait_phase<SpinLimit>(empty(slot_), parity_ ^ 1);
    }
  }

  /// Starts the copies of `count` extra boxes from `first` on into the present slot: all of this
  /// block's, or its share of those of each block of the cluster.
  template <class LoadExtra>
  __device__ void load_extra_slot(const TilePosition& tile, int first, int count,
                                  const LoadExtra& load_extra) const {
    const u32 barrier = full(slot_);
    expect_bytes(barrier, count * Shape::kBytesA);
    const int rank = Shape::kCluster > 1 ? cluster_rank() : 0;
    for (int i = rank; i < count; i += Shape::kCluster) {
      const u32 to = slot_address(slot_) + i * Shape::kBytesA;
      for (int block = 0; block < Shape::kCluster; ++block) {
        TilePosition its_tile = tile;
        its_tile.row += (block - rank) * Shape::kRows;
        load_extra(its_tile, first + i, [&](const TensorMap& map, int row, int column, u32 offset) {
          if constexpr (Shape::kCluster > 1) {
            load_box_to_block(to + offset, map, row, column, barrier, block);
          } else {
            load_box(to + offset, map, row, column, barrier);
          }
        });
      }
    }
  }

  enum : int { kBlocks = Shape::kGroupRows / 64 };
  /// Whether a thread has registers for two sets of a chunk's sums beside those of all.
  enum : bool { kOverlapsChunks = kBlocks * Shape::kColumns / 2 <= 64 };

  /// Consumers multiply one after the other. Who ran ahead by a whole round of the ring could not
  /// tell the phase it waits for from the one before: a barrier knows but their parity.
  __device__ static void wait_for_turn(int turn) {
    if constexpr (Shape::kTurns > 1) asm volatile("bar.sync %0, 256;" ::"r"(1 + turn) : "memory");
  }
  __device__ static void pass_turn(int turn) {
    if constexpr (Shape::kTurns > 1) asm volatile("bar.arrive %0, 256;" ::"r"(1 + turn) : "memory");
  }

  /// Waits for the extra boxes of a tile, the next slots in the ring. Before the turn is passed:
  /// who has it next may come to these slots again, where it must not take this phase for the next.
  __device__ void wait_for_extra() {
#pragma unroll
    for (int i = 0; i < kExtraSlots; ++i, next_slot()) wait_phase<SpinLimit>(full(slot_), parity_);
  }

  /// Frees the slots of the extra boxes, from slot `first` on, which have been read.
  __device__ void release_extra(int first) const {
    fence_async_proxy();  // else a copy could overwrite what is still to be read
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kExtraSlots; ++i) release((first + i) % Shape::kStages);
  }

  /// The product of the next tile in the ring, from `row` of the tile on. Where there are registers
  /// for it, chunks take turns with two sets of sums, so that one is added while the products of
  /// the next are running.
  template <class Prepare>
  __device__ void multiply_tile(int row, Sums& sums, const Prepare& prepare) {
    int last = -1;
    multiply_slabs(row, kChunkSlabs, sums, last, [] {});
    if constexpr (kChunks > 1) {
      static_assert(kChunks == 4);
      const auto add = [&](Sums& chunk) {
        pin_all(chunk);
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
          for (int j = 0; j < Shape::kColumns / 2; ++j) sums[i][j] += chunk[i][j];
        }
      };
      if constexpr (kOverlapsChunks) {
        Sums odd, even;
        clear(odd), clear(even);  // else they take registers while a tile is finished, too
        multiply_slabs(row, kChunkSlabs, odd, last, [&] { pin_all(sums); });
        multiply_slabs(row, kChunkSlabs, even, last, [&] { add(odd); });
        multiply_slabs(row, kSlabs - 3 * kChunkSlabs, odd, last, [&] { add(even); });
        prepare();
        finish_products(last);
        add(odd);
      } else {
        finish_products(last);
        pin_all(sums);
        Sums chunk;
#pragma unroll 1
        for (int i = 1; i < kChunks; ++i) {
          last = -1;
          clear(chunk);  // as above
          multiply_slabs(row, min(kChunkSlabs, kSlabs - i * kChunkSlabs), chunk, last, [] {});
          finish_products(last);
          add(chunk);
        }
        prepare();
      }
    } else {
      prepare();
      finish_products(last);
      pin_all(sums);
    }
  }

  /// This block's chunks of the only tile; then the sums of its share of the columns, from where
  /// `tile` is moved to. A thread's sums go to the same thread of the blocks that finish them, and
  /// arrive at their barriers.
  template <class Prepare>
  __device__ void multiply_split_tile(int row, TilePosition& tile, Sums& sums,
                                      const Prepare& prepare) {
    constexpr int kFours = Shape::kOutColumns / 8;  // sums of a thread in a share, for 64 rows
    const u32 rank = cluster_rank();
    // Where a thread finds four sums of chunk `chunk`.
    const auto exchange = [&](int chunk, int i, int j) {
      return ring_ + Shape::kStages * Shape::kSlotBytes +
             (((chunk * kBlocks + i) * kFours + j) * 128 * Shape::kConsumers + threadIdx.x) * 16;
    };
    if (threadIdx.x == 0) expect_bytes(exchanged(), kExchangeBytes);
    float chunk[kBlocks][Shape::kColumns / 2];
#pragma unroll 1
    for (int c = 0; c < kBlockChunks; ++c) {
      int last = -1;
      multiply_slabs(row, min(kChunkSlabs, slabs() - c * kChunkSlabs), chunk, last, [] {});
      if (c == kBlockChunks - 1) prepare();
      finish_products(last);
      pin_all(chunk);
#pragma unroll
      for (int to = 0; to < Shape::kSplit; ++to) {
        const u32 barrier = remote_address(exchanged(), to);
#pragma unroll
        for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
          for (int j = 0; j < kFours; ++j) {
            send(remote_address(exchange(rank * kBlockChunks + c, i, j), to),
                 &chunk[i][(to * kFours + j) * 4], barrier);
          }
        }
      }
    }
    wait_phase<SpinLimit>(exchanged(), 0);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        float* sum = &sums[i][j * 4];
        load4_shared(exchange(0, i, j), sum);
#pragma unroll
        for (int part = 1; part < kChunks; ++part) {
          float more[4];
          load4_shared(exchange(part, i, j), more);
#pragma unroll
          for (int x = 0; x < 4; ++x) sum[x] += more[x];
        }
      }
    }
    tile.column += rank * Shape::kOutColumns;
  }

  /// Starts the chain over the next `count` slabs in the ring. Where slots are used again, `last`
  /// is the one still being read, or -1, and products of before have ended when began() is called.
  template <class Began>
  __device__ void multiply_slabs(int row, int count, float (&sums)[kBlocks][Shape::kColumns / 2],
                                 int& last, const Began& began) {
    if constexpr (kFitsRing) {
#pragma unroll 2
      for (int slot = 0; slot < Shape::kStages; ++slot) {
        if (Shape::kSplit > 1 && slot == count) break;
        wait_phase<SpinLimit>(full(slot), parity_);
        start_slab(row, slot, slot > 0, sums);
        commit_products();
      }
      parity_ ^= 1;
    } else {
#pragma unroll 1
      for (int slab = 0; slab < count; ++slab, next_slot()) {
        wait_phase<SpinLimit>(full(slot_), parity_);
        start_slab(row, slot_, slab > 0, sums);
        commit_products();
        wait_for_products<1>();
        if (last >= 0) release(last);
        last = slot_;
        if (slab == 0) began();
      }
    }
  }

  /// Waits for the last products.
  __device__ void finish_products(int last) const {
    wait_for_products<0>();
    if constexpr (!kFitsRing) release(last);
  }

  /// Starts the products of the slab in a slot.
  __device__ void start_slab(int row, int slot, int add,
                             float (&sums)[kBlocks][Shape::kColumns / 2]) const {
    const u64 a = k_major_operand(slot_address(slot) + row * 128);
    const u64 w = k_major_operand(slot_address(slot) + Shape::kBytesA);
    fence_products();
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      multiply_slab<Elem, Shape::kColumns>(sums[i], operand_at(a, i * 64 * 128), w, add);
    }
  }

  __device__ static void clear(float (&sums)[kBlocks][Shape::kColumns / 2]) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kColumns / 2; ++j) sums[i][j] = 0;
    }
  }

  __device__ static void pin_all(float (&sums)[kBlocks][Shape::kColumns / 2]) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) pin(sums[i]);
  }

  /// The slabs of k that this block multiplies.
  __device__ static int first_slab() {
    return Shape::kSplit > 1 ? static_cast<int>(cluster_rank()) * kBlockSlabs : 0;
  }
  __device__ static int slabs() {
    return Shape::kSplit > 1 ? min(kBlockSlabs, kSlabs - first_slab()) : kSlabs;
  }

  __device__ u32 barriers() const {
    return ring_ + Shape::kStages * Shape::kSlotBytes + kExchangeBytes;
  }
  __device__ u32 full(int slot) const { return barriers() + slot * 8; }
  __device__ u32 empty(int slot) const { return barriers() + (Shape::kStages + slot) * 8; }
  __device__ u32 exchanged() const { return barriers() + 2 * Shape::kStages * 8; }
  __device__ u32 slot_address(int slot) const { return ring_ + slot * Shape::kSlotBytes; }

  __device__ void next_slot() {
    if (++slot_ == Shape::kStages) slot_ = 0, parity_ ^= 1;
  }

  __device__ void advance(int slabs) {
    const int next = slot_ + slabs;
    parity_ ^= next / Shape::kStages & 1;
    slot_ = next % Shape::kStages;
  }

  /// Tells the producers of all blocks that write to this slot that this warp has read it. (Not in
  /// a branch that some tiles take, unless slots are constants: the ring's state would leave the
  /// uniform registers.)
  __device__ void release(int slot) const {
    const u32 lane = threadIdx.x % 32;
    if constexpr (Shape::kCluster > 1) {
      if (lane < Shape::kCluster) arrive_remote(remote_address(empty(slot), lane));
    } else {
      if (lane == 0) arrive(empty(slot));
    }
  }

  u32 ring_;
  int slot_ = 0;
  u32 parity_ = 0;  ///< of the ring's current round
};

/// A product whose epilogue reads nothing but sums, or what it loads itself.
struct NoExtra {
  template <class Copy>
  __device__ void operator()(const TilePosition&, int, const Copy&) const {}
};

/// What a kernel fetches beside its product, by one more thread, to a place of its own: here,
/// nothing. kBytes of shared memory, a multiple of 1,024, lie before the product's; init() makes
/// barriers there.
struct NoSide {
  enum : u32 { kBytes = 0 };
  __device__ void init() const {}
  __device__ void fetch() const {}
};

/// The dynamic shared memory of the block.
__device__ inline u32 block_shared() {
  extern __shared__ __align__(1024) unsigned char shared[];
  return shared_window_address(shared);
}

/// The whole kernel; what a product does with its sums is in `begin_tile(tile, first_row)`,
/// `prepare(tile, first_row)`, `store_tile(tile, first_row, sums, box_address)` and `w_row(tile,
/// part)`, and what else it reads comes by `load_extra`, see ProductPipeline, or by `side`.
template <class Pipeline, class Tiles, class WRow, class BeginTile, class Prepare, class StoreTile,
          class LoadExtra = NoExtra, class Side = NoSide>
__device__ inline void run_product(const TensorMap& a, const TensorMap& w, const Tiles& tiles,
                                   const WRow& w_row, const BeginTile& begin_tile,
                                   const Prepare& prepare, const StoreTile& store_tile,
                                   const LoadExtra& load_extra = {}, const Side& side = {}) {
  constexpr int kConsumers = Pipeline::Shape::kConsumers;
  static_assert(Side::kBytes == 0 || Pipeline::kProducers < 4, "no warp is left for the side");
  Pipeline pipeline(block_shared() + Side::kBytes);
  const int producer = warp_index() - kConsumers * 4;
  const bool is_first_lane = threadIdx.x % 32 == 0;
  const bool produces = is_first_lane && producer >= 0 && producer < Pipeline::kProducers;
  // Blocks that share w must be ready for it.
  const bool loads_early = Pipeline::Shape::kCluster == 1 && producer == 0;
  if (threadIdx.x == 0) {
    prefetch_map(a);
    prefetch_map(w);
  }
  if (produces && producer == 0) {
    side.init();
    pipeline.init();
    if (loads_early) pipeline.load_first_weights(producer, w, tiles, w_row);
  }
  pipeline.sync();
  if (producer >= 0) {
    if constexpr (kConsumers == 2) shrink_registers<40>();
    if (produces) {
      if (!loads_early) pipeline.load_first_weights(producer, w, tiles, w_row);
      pipeline.produce(producer, a, w, tiles, w_row, load_extra);
    } else if (is_first_lane && producer == Pipeline::kProducers) {
      side.fetch();
    }
  } else {
    if constexpr (kConsumers == 2) grow_registers<232>();
    pipeline.consume(tiles, begin_tile, prepare, store_tile);
  }
}
