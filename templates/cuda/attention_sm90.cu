// Bidirectional attention over packed sequences, as attention, for 16-bit elements and heads of 64
// on Hopper: softmax(q * k^T / sqrt(64)) * v without storing the scores, on wgmma.
//
// Blocks stay and take (tile, head) items in turn. The warps of the last warpgroup, the producer,
// copy blocks of keys and values into a ring of slots and run ahead, into the next item too. Each
// other warpgroup works on 64 queries: it starts the scores of a block of keys, then the product
// of the block before with its values, and computes the softmax while the tensor cores are busy.
//
//! entry  attention_sm90
//! launch dependent
//! param  T          word  bf16 fp16              elements of qkv and out
//! param  HEADS      int   1..1024
//! param  HEAD_DIM   int   64..64
//! param  WINDOW     int   0..1048576             0: full attention
//! param  BQ         int   64..128 step 64        tile: queries of a block
//! param  KEYS       int   64..128 step 64        keys of a block of keys; part of the result
//! param  STAGES     int   2..6                   blocks of keys and values in flight
//! param  SPIN_LIMIT int   0..1000000000          0, or tries after which a wait traps
//!
//! arg    qkv        ptr                          [rows, 3 * HEADS * HEAD_DIM] T: q, k, v heads
//! arg    out        ptr                          [rows, HEADS * HEAD_DIM] T, written
//! arg    cu_seqlens ptr                          [S + 1] i32, first row of each sequence; of the host
//! arg    tiles      ptr                          [n, 2] i32: (sequence, first query in it); of the host
//! arg    n          i32                          may be 0 (with an empty grid)
//
// A tile of sequence -1 does nothing; first queries are multiples of BQ. Rows of no tile are not
// written, and no row of another sequence is read. qkv and out are aligned to 16 bytes.
// Blocks of keys start at multiples of KEYS from the sequence's start and are taken in ascending
// order, so that a row's result depends on its sequence and KEYS alone.
// Heads are the fastest part of an item's number: items that run together read the same rows.
// Launch: grid.x = n * HEADS, or fewer: best as many as there are multiprocessors;
// block.x = 2 * BQ + 128.
// Dynamic shared memory: BQ * 128 + STAGES * KEYS * 256 + BQ * 144 + STAGES * 32 + 32 bytes: the
// queries, the ring, results on their way out, barriers.
#include "async_copy.cuh"
#include "dependent_launch.cuh"
#include "mma.cuh"
#include "tma.cuh"
#include "warp_writer.cuh"
#include "wgmma.cuh"

enum : int { kConsumers = BQ / 64 };
enum : int { kThreads = (kConsumers + 1) * 128 };
/// Blocks that a multiprocessor has room for, if threads have 128 registers on average.
enum : int { kBlocks = BQ == 64 && KEYS == 64 ? 2 : 1 };
enum : long long { kPitch = 3 * HEADS * HEAD_DIM };  // elements from row to row of qkv
enum : int { kRowBytes = HEAD_DIM * T_BYTES };       // of a head: one row of the swizzle
enum : u32 { kQueryBytes = BQ * kRowBytes, kKeyBytes = KEYS * kRowBytes };
static_assert(kRowBytes == 128, "a row of a head is a row of the swizzle");
using Writer = WarpWriter<T, HEAD_DIM>;

/// One tile of queries and one head, as the producer announces it. length -1: no more items.
struct Item {
  int first_row;  // of the sequence, in qkv
  int length;     // of the sequence
  int first_query;
  int head;

  __device__ void store(u32 address) const {
    asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(first_row),
                 "r"(length), "r"(first_query), "r"(head)
                 : "memory");
  }
  __device__ void load(u32 address) {
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(first_row), "=r"(length), "=r"(first_query), "=r"(head)
                 : "r"(address)
                 : "memory");
  }
};

/// Item `number`; length -1 for a tile without a sequence and behind the last item.
__device__ inline Item item_of(int number, const int* cu_seqlens, const int* tiles, int n) {
  if (number >= n * HEADS) return {0, -1, 0, 0};
  const int sequence = tiles[2 * (number / HEADS)], first_query = tiles[2 * (number / HEADS) + 1];
  if (sequence < 0) return {0, -1, 0, 0};
  const int first_row = cu_seqlens[sequence];
  return {first_row, cu_seqlens[sequence + 1] - first_row, first_query, number % HEADS};
}

/// The blocks of keys that `count` queries from `query` on need: first to end - 1.
struct KeyRange {
  int first, end;
};
__device__ inline KeyRange key_range(int query, int count, int length) {
  if (WINDOW == 0) return {0, (length + KEYS - 1) / KEYS};
  return {max(0, query - WINDOW) / KEYS, (min(length, query + count + WINDOW) + KEYS - 1) / KEYS};
}

/// A place in the ring.
struct Cursor {
  int slot = 0;
  u32 parity = 0;
  __device__ void advance() {
    if (++slot == STAGES) slot = 0, parity ^= 1;
  }
};

/// Addresses in shared memory. Barriers say that something has arrived (full) or that all consumers
/// have read it (empty). Queries are read by ordinary instructions of every thread, so every thread
/// arrives at their barriers; keys and values are read by the tensor cores for whole warps.
struct Layout {
  u32 queries, ring, staging, barriers;

  __device__ explicit Layout(u32 shared)
      : queries(shared),
        ring(shared + kQueryBytes),
        staging(ring + STAGES * 2 * kKeyBytes),
        barriers(staging + kConsumers * 4 * Writer::kBytes) {}
  __device__ u32 keys(int slot) const { return ring + slot * 2 * kKeyBytes; }
  __device__ u32 values(int slot) const { return keys(slot) + kKeyBytes; }
  __device__ u32 item() const { return barriers; }
  __device__ u32 full_queries() const { return barriers + 16; }
  __device__ u32 empty_queries() const { return barriers + 24; }
  __device__ u32 full_keys(int slot) const { return barriers + 32 + slot * 32; }
  __device__ u32 empty_keys(int slot) const { return barriers + 40 + slot * 32; }
  __device__ u32 full_values(int slot) const { return barriers + 48 + slot * 32; }
  __device__ u32 empty_values(int slot) const { return barriers + 56 + slot * 32; }

  /// By one thread.
  __device__ void init() const {
    constexpr u32 kProducers = 128, kConsumerWarps = 4 * kConsumers;
    init_barrier(full_queries(), kProducers + 1);
    init_barrier(empty_queries(), 128 * kConsumers);
    for (int i = 0; i < STAGES; ++i) {
      init_barrier(full_keys(i), kProducers);
      init_barrier(empty_keys(i), kConsumerWarps);
      init_barrier(full_values(i), kProducers);
      init_barrier(empty_values(i), kConsumerWarps);
    }
    publish_barriers();
  }
};

__device__ inline void wait_for(u32 barrier, u32 parity) {
  wait_phase<SPIN_LIMIT>(barrier, parity);
}

/// One arrival for this warp.
__device__ inline void warp_arrive(u32 barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}

/// Does nothing, but only once `x`, which is never negative, is known. Without it the assembler
/// moves the wait for the tensor cores up, before the arithmetic that is there to fill the time.
__device__ inline void hold_back(float x) {
  if (__any_sync(0xffffffff, x < 0)) __syncwarp();
}

/// The four warps that fetch. Copies are asynchronous and announce themselves.
class Producer {
 public:
  __device__ explicit Producer(const Layout& layout) : at_(layout) {}

  __device__ void send_item(const Item& item, const T* qkv) {
    wait_for(at_.empty_queries(), parity_ ^ 1);
    parity_ ^= 1;
    if (threadIdx.x % 128 == 0) {
      item.store(at_.item());
      arrive(at_.full_queries());
    }
    if (item.length < 0) {
      arrive(at_.full_queries());
      asm volatile("cp.async.wait_all;" ::: "memory");  // no copy outlives its thread
      return;
    }
    const T* head = qkv + item.first_row * kPitch + item.head * HEAD_DIM;
    copy_rows<BQ>(at_.queries, head, item.first_query, item.length);
    arrive_when_copied(at_.full_queries());
    const KeyRange range = key_range(item.first_query, BQ, item.length);
#pragma unroll 1
    for (int block = range.first; block < range.end; ++block, cursor_.advance()) {
      wait_for(at_.empty_keys(cursor_.slot), cursor_.parity ^ 1);
      copy_rows<KEYS>(at_.keys(cursor_.slot), head + HEADS * HEAD_DIM, block * KEYS, item.length);
      arrive_when_copied(at_.full_keys(cursor_.slot));
      wait_for(at_.empty_values(cursor_.slot), cursor_.parity ^ 1);
      copy_rows<KEYS>(at_.values(cursor_.slot), head + 2 * HEADS * HEAD_DIM, block * KEYS,
                      item.length);
      arrive_when_copied(at_.full_values(cursor_.slot));
    }
  }

 private:
  /// Rows from `length` on become zeros: 0 * v must not be NaN.
  template <int Rows>
  __device__ static void copy_rows(u32 to, const T* head, int first, int length) {
    const int chunk = threadIdx.x % 8;
    int row = threadIdx.x % 128 / 8;
    const T* from = head + (first + row) * kPitch + chunk * 8;
    to += row * kRowBytes + swizzle<8>(row, chunk) * 16;
#pragma unroll 1  // producers have few registers
    for (int i = 0; i < Rows / 16; ++i) {
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                   "r"(first + row < length ? 16 : 0)
                   : "memory");
      row += 16;
      from += 16 * kPitch;
      to += 16 * kRowBytes;
    }
  }

  const Layout at_;
  Cursor cursor_;
  u32 parity_ = 0;  // of the queries' slot
};

/// A warpgroup's 64 queries.
class Consumer {
 public:
  __device__ explicit Consumer(const Layout& layout) : at_(layout) {}

  /// False: there are no more items.
  __device__ bool work(T* out) {
    wait_for(at_.full_queries(), parity_);
    parity_ ^= 1;
    Item item;
    item.load(at_.item());
    item.length = uniform(item.length);
    item.first_query = uniform(item.first_query);
    if (item.length < 0) return false;
    load_queries();
    arrive(at_.empty_queries());

    const int group_query = item.first_query + warp_index() / 4 * 64;
    query_ = group_query + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    length_ = item.length;
    const KeyRange all = key_range(item.first_query, BQ, item.length);
    KeyRange mine = key_range(group_query, 64, item.length);
    if (group_query >= item.length) mine = {all.end, all.end};  // queries behind the sequence
    skip(mine.first - all.first);
    if (mine.first < mine.end) {
      attend(mine);
      store(out, item, group_query);
    }
    skip(all.end - mine.end);
    return true;
  }

 private:
  enum : int { kSteps = KEYS / 16 };

  __device__ void load_queries() {
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 16;
    const int chunk = threadIdx.x % 32 / 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      load_matrices(q_[i], at_.queries + row * kRowBytes + swizzle<8>(row, 2 * i + chunk) * 16);
    }
  }

  /// Passes over blocks that only other warpgroups need.
  __device__ void skip(int blocks) {
#pragma unroll 1
    for (int i = 0; i < blocks; ++i) {
      wait_for(at_.full_keys(keys_.slot), keys_.parity);
      release_keys();
      wait_for(at_.full_values(values_.slot), values_.parity);
      release_values();
    }
  }

  __device__ void attend(const KeyRange& range) {
    max_[0] = max_[1] = -kInfinity;
    sum_[0] = sum_[1] = 0;
    // The range is uniform(): the assembler would wait for each product in a branch that is not.
#pragma unroll 1
    for (int block = range.first; block < range.end; ++block) {
      const bool later = block > range.first;
      if (later) wait_for(at_.full_values(values_.slot), values_.parity);
      wait_for(at_.full_keys(keys_.slot), keys_.parity);
      fence_async_proxy();  // copies wrote as ordinary stores do
      start();
      multiply_keys();
      if (later) {
        fence_products();
        multiply_values(block - 1 > range.first);
        wait_for_products<1>();
      } else {
        wait_for_products<0>();
      }
      pin(s_);
      release_keys();
      soften(block);
      if (later) {
        hold_back(sum_[0] + sum_[1]);
        wait_for_products<0>();
        pin(o_);
        release_values();
#pragma unroll
        for (int i = 0; i < 32; ++i) o_[i] *= rescale_[i / 2 % 2];
      }
      pack_probabilities();
    }
    wait_for(at_.full_values(values_.slot), values_.parity);
    fence_async_proxy();
    start();
    multiply_values(range.end - 1 > range.first);
    wait_for_products<0>();
    pin(o_);
    release_values();
  }

  /// All registers that products read are as they should be.
  __device__ void start() {
    pin(o_);
    pin(p_);
    pin(q_);
    fence_products();
  }

  __device__ void multiply_keys() {
    const u64 keys = k_major_operand(at_.keys(keys_.slot));
#pragma unroll
    for (int i = 0; i < 4; ++i) multiply<T, KEYS>(s_, q_[i], keys + i * 32 / 16, i > 0);
    commit_products();
  }

  __device__ void multiply_values(int add) {
    const u64 values = n_major_operand(at_.values(values_.slot));
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      multiply_n_major<T>(o_, p_[i], values + i * 2048 / 16, i > 0 ? 1 : add);
    }
    commit_products();
  }

  /// Scores of block `block` become probabilities relative to the largest score so far.
  __device__ void soften(int block) {
    constexpr float kScale = 0.125f * 1.44269504f;  // of the scores, for powers of 2
    mask(block * KEYS);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // rows g and g + 8
      float top = max_[half];
#pragma unroll
      for (int i = 2 * half; i < KEYS / 2; i += 4) top = fmaxf(top, fmaxf(s_[i], s_[i + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
      const float offset = WINDOW != 0 && top == -kInfinity ? 0 : -top * kScale;
      rescale_[half] = power_of_2(__fmaf_rn(max_[half], kScale, offset));
      max_[half] = top;
      float sum = 0;
#pragma unroll
      for (int i = 2 * half; i < KEYS / 2; i += 4) {
        s_[i] = power_of_2(__fmaf_rn(s_[i], kScale, offset));
        s_[i + 1] = power_of_2(__fmaf_rn(s_[i + 1], kScale, offset));
        sum += s_[i] + s_[i + 1];
      }
      sum_[half] = __fmaf_rn(sum_[half], rescale_[half], sum);
    }
  }

  /// Scores of keys that a query does not see become -infinity.
  __device__ void mask(int first_key) {
    const int group_query = query_ / 64 * 64;
    const bool inside = first_key + KEYS <= length_ &&
                        (WINDOW == 0 || (first_key >= group_query + 63 - WINDOW &&
                                         first_key + KEYS - 1 <= group_query + WINDOW));
    if (inside) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = query_ + half * 8, column = first_key + threadIdx.x % 4 * 2;
      const int end = (WINDOW == 0 ? length_ : min(length_, query + WINDOW + 1)) - column;
      const int begin = WINDOW == 0 ? 0 : query - WINDOW - column;
#pragma unroll
      for (int i = 2 * half; i < KEYS / 2; i += 4) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int key = i / 4 * 8 + e;
          if (key >= end || (WINDOW != 0 && key < begin)) s_[i + e] = -kInfinity;
        }
      }
    }
  }

  __device__ void pack_probabilities() {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) p_[i][j] = pack2<T>(s_[8 * i + 2 * j], s_[8 * i + 2 * j + 1]);
    }
  }

  __device__ void store(T* out, const Item& item, int group_query) {
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = sum_[half];
      sum += __shfl_xor_sync(0xffffffff, sum, 1);
      sum += __shfl_xor_sync(0xffffffff, sum, 2);
      inverse[half] = reciprocal(sum);
    }
    const Writer writer(at_.staging + threadIdx.x / 32 * Writer::kBytes);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; ++i) {
      writer.put(i, pack2<T>(o_[4 * i] * inverse[0], o_[4 * i + 1] * inverse[0]),
                 pack2<T>(o_[4 * i + 2] * inverse[1], o_[4 * i + 3] * inverse[1]));
    }
    const int row = item.first_row + group_query + threadIdx.x % 128 / 32 * 16;
    writer.store<HEADS * HEAD_DIM>(out, row, item.head * HEAD_DIM, item.first_row + length_);
  }

  __device__ void release_keys() {
    warp_arrive(at_.empty_keys(keys_.slot));
    keys_.advance();
  }
  __device__ void release_values() {
    warp_arrive(at_.empty_values(values_.slot));
    values_.advance();
  }

  /// To within 1 ulp.
  __device__ static float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }
  __device__ static float power_of_2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  static constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000);

  const Layout at_;
  Cursor keys_, values_;  // next to be read
  u32 parity_ = 0;        // of the queries' slot
  int query_ = 0;         // of row g of this thread, in its sequence
  int length_ = 0;
  u32 q_[4][4];
  float s_[KEYS / 2];      // scores, then probabilities
  u32 p_[kSteps][4];       // probabilities of the block before
  float o_[HEAD_DIM / 2];  // output so far
  float max_[2], sum_[2];  // of rows g and g + 8; sums of this thread's columns alone
  float rescale_[2];
};

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    attention_sm90(const T* qkv, T* out, const int* cu_seqlens, const int* tiles, int n) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const Layout layout(shared_window_address(shared));
  if (threadIdx.x == 0) layout.init();
  __syncthreads();
  if (threadIdx.x / 128 == kConsumers) {
    if constexpr (kConsumers == 2) shrink_registers<40>();
    if constexpr (kBlocks == 2) shrink_registers<56>();
    Producer producer(layout);
    Item item = item_of(blockIdx.x, cu_seqlens, tiles, n);
    wait_for_kernels_before();
    for (int i = blockIdx.x; i < n * HEADS;) {
      if (item.length >= 0) producer.send_item(item, qkv);
      if (i == blockIdx.x) let_next_kernel_start();
      i += gridDim.x;
      item = item_of(i, cu_seqlens, tiles, n);
    }
    producer.send_item({0, -1, 0, 0}, qkv);
  } else {
    if constexpr (kConsumers == 2) grow_registers<232>();
    if constexpr (kBlocks == 2) grow_registers<200>();
    Consumer consumer(layout);
    while (consumer.work(out)) {
    }
  }
}
