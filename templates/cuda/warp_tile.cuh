// One warp's part of a matrix product: WM x WN sums in registers, fed from slabs in shared memory.
//
// A slab is 128 bytes of k for some rows of an operand: 8 swizzled chunks a row (async_copy.cuh).
// Every sum is one chain of additions in ascending k, in the same steps for every tile shape: that
// makes a result independent of the shape.
#pragma once

#include "async_copy.cuh"
#include "mma.cuh"

enum : int { kSlabBytes = 128 };  ///< of one row
enum : int { kSlabChunks = kSlabBytes / 16 };

/// Shared addresses of a warp's first rows in the slabs of both operands.
struct Slabs {
  u32 a, w;
};

/// 16-bit elements on tensor cores.
template <class Elem, int WM, int WN>
class WarpTile {
  static_assert(WM % 16 == 0 && WN % 16 == 0, "fragments are 16 x 16");

 public:
  /// Adds the product of one slab, and calls all_read() once between the last read of the slab and
  /// the end of the arithmetic.
  template <class AllRead>
  __device__ void multiply(Slabs slabs, const AllRead& all_read) {
    // Two steps at a time are enough code to keep the tensor cores busy; unrolling further only
    // makes the compiler slow.
#pragma unroll 1
    for (int step = 0; step < kSteps; step += 2) {
      Fragments even, odd;
      load(even, slabs, step);
      load(odd, slabs, step + 1);
      if (step + 2 == kSteps) all_read();
      multiply(even);
      multiply(odd);
    }
  }

  /// Writes the sums to the shared address `tile`, row-major with `pitch` floats a row.
  __device__ void store(u32 tile, int pitch) const {
    const int lane = threadIdx.x % 32;
    const u32 corner = tile + (lane / 4 * pitch + lane % 4 * 2) * 4;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const u32 at = corner + (i * 16 * pitch + j * 8) * 4;
        store_shared8(at, sums_[i][j][0], sums_[i][j][1]);
        store_shared8(at + 8 * pitch * 4, sums_[i][j][2], sums_[i][j][3]);
      }
    }
  }

 private:
  enum : int { kSteps = kSlabBytes / sizeof(Elem) / 16 };
  enum : int { kRows = WM / 16, kColumns = WN / 8 };

  struct Fragments {
    u32 a[kRows][4];
    u32 w[kColumns / 2][4];  // two column fragments each
  };

  __device__ static void load(Fragments& f, Slabs slabs, int step) {
    const int lane = threadIdx.x % 32;
    // Lanes 0-15 address 16 rows of a at the lower 8 of 16 k, lanes 16-31 at the upper 8. Of w it
    // is 8 rows at the lower and at the upper 8 k, then 8 more rows. A step is two chunks on.
    const u32 a =
        slabs.a + lane % 16 * kSlabBytes + (swizzle<kSlabChunks>(lane, lane / 16) * 16 ^ step * 32);
    const u32 w = slabs.w + (lane / 16 * 8 + lane % 8) * kSlabBytes +
                  (swizzle<kSlabChunks>(lane, lane / 8 % 2) * 16 ^ step * 32);
#pragma unroll
    for (int i = 0; i < kRows; ++i) load_matrices(f.a[i], a + i * 16 * kSlabBytes);
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) load_matrices(f.w[j], w + j * 16 * kSlabBytes);
  }

  __device__ void multiply(const Fragments& f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const u32* w = &f.w[j / 2][j % 2 * 2];
        multiply_add<Elem>(sums_[i][j], f.a[i], w[0], w[1]);
      }
    }
  }

  float sums_[kRows][kColumns][4] = {};
};

/// fp32 on the ordinary cores. Lane (y, x) of 4 x 8 has rows y + 4i and columns x + 8j: all lanes
/// of one load read different banks or the same address.
template <int WM, int WN>
class WarpTile<fp32, WM, WN> {
 public:
  template <class AllRead>
  __device__ void multiply(Slabs slabs, const AllRead& all_read) {
    const int y = threadIdx.x % 32 / 8, x = threadIdx.x % 8;
    // Few sums leave the loads of one chunk too little arithmetic to hide behind.
    constexpr int kUnroll = kRows * kColumns <= 8 ? 4 : 1;
#pragma unroll kUnroll
    for (int chunk = 0; chunk < kSlabChunks; ++chunk) {
      float4 right[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        right[j] = load_chunk(slabs.w, x + 8 * j, chunk);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float4 left = load_chunk(slabs.a, y + 4 * i, chunk);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          float& sum = sums_[i][j];
          sum = __fmaf_rn(left.x, right[j].x, sum);
          sum = __fmaf_rn(left.y, right[j].y, sum);
          sum = __fmaf_rn(left.z, right[j].z, sum);
          sum = __fmaf_rn(left.w, right[j].w, sum);
        }
      }
    }
    all_read();
  }

  __device__ void store(u32 tile, int pitch) const {
    const int y = threadIdx.x % 32 / 8, x = threadIdx.x % 8;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        store_shared4(tile + ((y + 4 * i) * pitch + x + 8 * j) * 4, __float_as_uint(sums_[i][j]));
      }
    }
  }

 private:
  enum : int { kRows = WM / 4, kColumns = WN / 8 };

  __device__ static float4 load_chunk(u32 slab, int row, int chunk) {
    return load_shared16(slab + row * kSlabBytes + swizzle<kSlabChunks>(row, chunk) * 16);
  }

  float sums_[kRows][kColumns] = {};
};
