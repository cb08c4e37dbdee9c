// out = softmax(q * k^T / sqrt(HEAD_DIM)) * v for packed sequences, bidirectional: queries see the
// keys of their own sequence, with a window only those at a distance of at most WINDOW. The
// softmax is taken online in fp32; there is no score matrix and no mask in memory.
//
//! entry  attention
//! launch dependent
//! param  T          word  fp32 bf16 fp16         elements of qkv and out
//! param  HEADS      int   1..1024
//! param  HEAD_DIM   int   32..128 step 32        32, 64 or 128; at most 64 in fp32 and on 7.5
//! param  WINDOW     int   0..1048576             0: full attention
//! param  BQ         int   64..128 step 64        tile: queries of a block; 64 in fp32
//!
//! arg    qkv        ptr                          [rows, 3 * HEADS * HEAD_DIM] T: q, k, v heads
//! arg    out        ptr                          [rows, HEADS * HEAD_DIM] T, written
//! arg    cu_seqlens ptr                          [S + 1] i32, first row of each sequence
//! arg    tiles      ptr                          [n, 2] i32: (sequence, first query in it)
//! arg    n          i32                          may be 0 (with an empty grid)
//
// A tile of sequence -1 does nothing. Rows of no tile are not written. qkv and out are aligned to
// 16 bytes.
// Blocks of key positions start at multiples of a fixed count from the sequence's start and are
// taken in ascending order, so that a row's result depends on its sequence alone.
// Heads are the fastest part of the block number: blocks that run together then read whole rows of
// the same few sequences, which DRAM pages and the L2 cache both like.
// Launch: grid.x = n * HEADS, block.x = 128.
// Dynamic shared memory: 16-bit (BQ + 256) * HEAD_DIM * 2, fp32 (BQ + 128) * HEAD_DIM * 4 + BQ *
// 160 bytes: the queries, two slots for a block of keys and values, fp32's probabilities.
#include "attention_warp.cuh"
#include "dependent_launch.cuh"

static_assert(HEAD_DIM == 32 || HEAD_DIM == 64 || HEAD_DIM == 128, "no such head size");
static_assert(HEAD_DIM * T_BYTES <= 256, "fp32 heads have at most 64 columns");
static_assert(HEAD_DIM <= 64 || __CUDA_ARCH__ >= 800, "too much shared memory for 7.5");

enum : int { kThreads = 128 };
enum : int { kWarpRows = BQ / 4 };
/// Blocks that a multiprocessor must have registers for: as many as fit without spills.
enum : int { kMinBlocks = kIsFp32<T> || HEAD_DIM > 64 || __CUDA_ARCH__ < 800 ? 1 : 256 / BQ };
enum : int { kRowBytes = HEAD_DIM * T_BYTES, kChunks = kRowBytes / 16 };
enum : long long { kPitch = 3 * HEADS * HEAD_DIM };  // elements from row to row of qkv
using Warp = AttentionWarp<T, kWarpRows, HEAD_DIM>;
enum : u32 { kKeyBytes = Warp::kKeys * kRowBytes };  // of a block of keys, or of values

/// Copies rows first.. of one head of q, k or v; rows from `length` on become zeros.
template <int Rows>
struct RowsCopy : TileCopy<Rows, kChunks, kThreads, kPitch * T_BYTES> {
  __device__ void start_rows(u32 tile, const T* head, int first, int length) {
    this->start(tile, head + first * kPitch, [&](int row) { return first + row < length; });
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, kMinBlocks)
    attention(const T* qkv, T* out, const int* cu_seqlens, const int* tiles, int n) {
  extern __shared__ __align__(128) unsigned char shared[];
  let_next_kernel_start();
  wait_for_kernels_before();
  const int tile = blockIdx.x / HEADS, head = blockIdx.x % HEADS;
  const int sequence = tile < n ? tiles[2 * tile] : -1;
  if (sequence < 0) return;
  const int first_query = tiles[2 * tile + 1];
  const int first_row = cu_seqlens[sequence], length = cu_seqlens[sequence + 1] - first_row;
  const T* q = qkv + first_row * kPitch + head * HEAD_DIM;
  const T* k = q + HEADS * HEAD_DIM;
  const T* v = k + HEADS * HEAD_DIM;

  const int first_key = WINDOW ? max(0, first_query - WINDOW) / Warp::kKeys * Warp::kKeys : 0;
  const int end_key = WINDOW ? min(length, first_query + BQ + WINDOW) : length;

  const u32 queries = shared_address(shared), ring = queries + BQ * kRowBytes;
  RowsCopy<Warp::kKeys> copy_k, copy_v;
  const auto start = [&](int key, u32 slot) {
    copy_k.start_rows(slot, k, key, length);
    copy_v.start_rows(slot + kKeyBytes, v, key, length);
  };
  const auto finish = [&](u32 slot) {
    copy_k.finish(slot);
    copy_v.finish(slot + kKeyBytes);
  };
  RowsCopy<BQ> copy_q;
  copy_q.start_rows(queries, q, first_query, length);
  copy_q.finish(queries);
  start(first_key, ring);
  finish(ring);
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 warp_queries = queries + warp * kWarpRows * kRowBytes;
  const Band<kWarpRows, WINDOW> band{first_query + warp * kWarpRows, length};
  Warp state(warp_queries, ring + 4 * kKeyBytes + warp * Warp::kScratchBytes);
  u32 slot = ring, next_slot = ring + 2 * kKeyBytes;
#pragma unroll 1
  for (int key = first_key; key < end_key; key += Warp::kKeys) {
    const bool more = key + Warp::kKeys < end_key;
    if (more) start(key + Warp::kKeys, next_slot);
    commit_copies();
    if (!band.skips(key, Warp::kKeys)) state.add_keys(slot, slot + kKeyBytes, key, band);
    if (more) finish(next_slot);
    wait_for_copies<0>();
    __syncthreads();  // the next block has arrived, and no warp still reads this one
    const u32 read = slot;
    slot = next_slot;
    next_slot = read;
  }

  state.store();
#pragma unroll 1
  for (int unit = lane; unit < kWarpRows * kChunks; unit += 32) {
    const int row = unit / kChunks, chunk = unit % kChunks, query = band.first_query + row;
    if (query >= length) break;
    const float4 bits =
        load_shared16(warp_queries + row * kRowBytes + swizzle<kChunks>(row, chunk) * 16);
    const long long to = static_cast<long long>(first_row + query) * (HEADS * HEAD_DIM);
    T* at = out + to + head * HEAD_DIM + chunk * (16 / T_BYTES);
    *reinterpret_cast<float4*>(at) = bits;
  }
}
