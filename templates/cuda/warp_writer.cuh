// The way of a warp's results in registers to rows in global memory. For sm_90 and later.
#pragma once

#include "types.cuh"

/// Writes 16 rows of a warp's results through shared memory, so that each thread stores 16 bytes
/// and whole sectors are written.
template <class Elem, int Columns>
class WarpWriter {
 public:
  enum : int { kBlocks = Columns / 8 };
  enum : u32 { kPitch = (kBlocks | 1) * 16 };  ///< an odd number of chunks: no bank conflicts
  enum : u32 { kBytes = 16 * kPitch };

  __device__ explicit WarpWriter(u32 shared) : shared_(shared) {}

  /// Block `block` of 8 columns: packed pairs of columns 2t, 2t + 1 of rows g and g + 8.
  __device__ void put(int block, u32 low_row, u32 high_row) const {
    const u32 to = shared_ + threadIdx.x % 16 * kPitch + block * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(low_row),
                 "r"(high_row)
                 : "memory");
  }

  /// Stores all of it with its corner at (row, column) of out [rows, N].
  template <int N>
  __device__ void store(Elem* out, int row, int column, int rows) const {
    __syncwarp();
#pragma unroll 2
    for (int unit = threadIdx.x % 32; unit < 16 * kBlocks; unit += 32) {
      const int r = unit / kBlocks, block = unit % kBlocks;
      uint4 chunk;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w)
                   : "r"(shared_ + r * kPitch + block * 16));
      if (row + r < rows) {
        store16(out + static_cast<long long>(row + r) * N + column + block * 8, chunk);
      }
    }
    __syncwarp();
  }

 private:
  u32 shared_;
};
