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
__device__ inline void store_shared8(u32 address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
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

/// One thread's share of copying a tile of Rows rows of Chunks chunks with Threads threads, from
/// rows that are Pitch bytes apart. A thread's chunks are a fixed number of rows apart, so that
/// their addresses differ by constants.
///
/// start() begins the copy and finish() completes it as far as this thread can: work put between
/// them hides the latency on 7.5. On 8.0 and later finish() does nothing and the copy ends with
/// wait_for_copies().
template <int Rows, int Chunks, int Threads, long long Pitch>
class TileCopy {
 public:
  enum : int { kRowStep = Threads / Chunks };  ///< rows from one chunk of a thread to the next
  static_assert(Rows % kRowStep == 0, "threads must divide the tile evenly");
  static_assert(Threads % (8 * Chunks) == 0, "a thread's rows must share one swizzle");

  /// This thread's first chunk.
  __device__ static int row() { return threadIdx.x / Chunks; }
  __device__ static int chunk() { return threadIdx.x % Chunks; }

  /// `from`: the tile's first row. Rows for which valid(row) is false are not read and become
  /// zeros.
  template <class Valid>
  __device__ void start(u32 tile, const void* from, const Valid& valid) {
    start_from<0>(slot(tile), static_cast<const char*>(from) + row() * Pitch + chunk() * 16, valid);
  }

  __device__ void finish([[maybe_unused]] u32 tile) {
#if __CUDA_ARCH__ < 800
#pragma unroll
    for (int i = 0; i < kCopies; ++i) store_shared16(slot(tile) + i * kTileStep, held_[i]);
#endif
  }

 private:
  enum : int { kCopies = Rows / kRowStep };           // per thread
  enum : int { kTileStep = kRowStep * Chunks * 16 };  // bytes from chunk to chunk of a thread
  enum : long long { kStep = kRowStep * Pitch };

  __device__ static u32 slot(u32 tile) {
    return tile + (row() * Chunks + swizzle<Chunks>(row(), chunk())) * 16;
  }

  // A recursion rather than a loop, so that the distances are immediates of the instruction.
  template <int I, class Valid>
  __device__ void start_from(u32 to, const char* from, const Valid& valid) {
    if constexpr (I < kCopies) {
      const bool read = valid(row() + I * kRowStep);
#if __CUDA_ARCH__ >= 800
      asm volatile("cp.async.cg.shared.global.L2::128B [%0 + %3], [%1 + %4], 16, %2;" ::"r"(to),
                   "l"(from), "r"(read ? 16 : 0), "n"(I * kTileStep), "n"(I * kStep)
                   : "memory");
#else
      held_[I] =
          read ? *reinterpret_cast<const float4*>(from + I * kStep) : make_float4(0, 0, 0, 0);
#endif
      start_from<I + 1>(to, from, valid);
    }
  }

#if __CUDA_ARCH__ < 800
  float4 held_[kCopies];
#endif
};
