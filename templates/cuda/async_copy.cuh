// Copies of 16-byte chunks from global to swizzled shared memory: asynchronous from compute
// capability 8.0 on, through registers on 7.5.
//
// Swizzle: a tile in shared memory has rows of 4, 8 or 16 chunks. Chunk c of row r is stored at
// chunk swizzle(r, c) of that row, so that 8 neighbouring rows of one column lie in different banks
// and ldmatrix reads them without conflict. Tiles begin at addresses that are multiples of 128.
#pragma once

#include "types.cuh"

template <int Chunks>
__device__ constexpr int swizzle(int row, int chunk) {
  static_assert(Chunks == 4 || Chunks == 8 || Chunks == 16, "rows are 64, 128 or 256 bytes long");
  return Chunks == 4 ? chunk ^ ((row >> 1) & 3) : chunk ^ (row & 7);
}

/// Address of generic pointer `p` in the shared window.
__device__ inline u32 shared_address(const void* p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}

__device__ inline float4 load_shared16(u32 address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address));
  return v;
}
__device__ inline void store_shared4(u32 address, u32 v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
__device__ inline void store_shared16(u32 address, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y),
               "f"(v.z), "f"(v.w)
               : "memory");
}

/// Closes a group of copies; wait_for_copies<n>() waits until at most the n youngest groups are
/// still under way (a barrier must follow before other threads' copies are read).
__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int Groups>
__device__ inline void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
#endif
}

/// Where a chunk comes from; an invalid one is not read and becomes zeros.
struct Chunk {
  const void* address;
  bool valid;
};

/// One thread's share of copying a tile of Rows x Chunks chunks with Threads threads.
/// start() begins the copy and finish() completes it as far as this thread can: work put between
/// them hides the latency. `source(row, chunk)` says where to read. On 8.0 and later finish() does
/// nothing and the copy ends with wait_for_copies().
template <int Rows, int Chunks, int Threads>
class TileCopy {
 public:
  static constexpr int kCopies = Rows * Chunks / Threads;  ///< per thread
  static_assert(kCopies * Threads == Rows * Chunks, "threads must divide the tile evenly");
  static_assert(Threads % (8 * Chunks) == 0, "a thread's rows must share one swizzle");

  template <class Source>
  __device__ void start(u32 tile, const Source& source) {
    const int row = threadIdx.x / Chunks, chunk = threadIdx.x % Chunks;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const Chunk from = source(row + i * kRowStep, chunk);
#if __CUDA_ARCH__ >= 800
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(slot(tile, i)),
                   "l"(from.address), "r"(from.valid ? 16 : 0)
                   : "memory");
#else
      held_[i] = from.valid ? *static_cast<const float4*>(from.address) : make_float4(0, 0, 0, 0);
#endif
    }
  }

  __device__ void finish([[maybe_unused]] u32 tile) {
#if __CUDA_ARCH__ < 800
#pragma unroll
    for (int i = 0; i < kCopies; ++i) store_shared16(slot(tile, i), held_[i]);
#endif
  }

 private:
  static constexpr int kRowStep = Threads / Chunks;

  __device__ static u32 slot(u32 tile, int i) {
    const int row = threadIdx.x / Chunks, chunk = threadIdx.x % Chunks;
    return tile + (row * Chunks + swizzle<Chunks>(row, chunk)) * 16 + i * kRowStep * Chunks * 16;
  }

#if __CUDA_ARCH__ < 800
  float4 held_[kCopies];
#endif
};
