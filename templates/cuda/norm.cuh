// LayerNorm of rows held in registers: each thread has 8 neighbouring columns out of every
// 8 * Threads. Mean and variance are taken in two passes in fp32. The order of additions depends
// on D and Threads only.
#pragma once

#include "reduce.cuh"
#include "types.cuh"

/// Blocks of `threads` that a multiprocessor must have registers for: enough to keep its memory
/// pipe full, and few enough that a row stays in registers.
__device__ constexpr int norm_blocks(int threads) {
  return threads < 512 ? 512 / threads : 1;
}

/// One row of D columns spread over Threads threads: a power of two, at least a warp. A block
/// holds whole rows: its thread t works on row t / Threads of the block.
template <int D, int Threads>
class NormRow {
  static_assert(D % 8 == 0, "columns are taken 8 at a time");
  static_assert(Threads % 32 == 0 && Threads <= 1024, "a row takes whole warps");

 public:
  enum : int { kSteps = (D + 8 * Threads - 1) / (8 * Threads) };

  /// Calls visit(column, values of columns column..column + 7) for each 8 columns of this thread.
  template <class Visit>
  __device__ void for_each(const Visit& visit) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int column = (step * Threads + threadIdx.x % Threads) * 8;
      if (D % (8 * Threads) == 0 || column < D) visit(column, values_[step]);
    }
  }

  /// Replaces the row by (row - mean) / sqrt(variance + eps). Threads that share a row, and where a
  /// row takes more than a warp all threads of the block, must call it together.
  __device__ void normalize(float eps) {
    float sum = 0;
    for_each([&](int, const Float8& x) { sum += add8(x); });
    const float mean = row_sum(sum) / D;
    float squares = 0;
    for_each([&](int, Float8& x) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x.v[i] -= mean;
        squares = __fmaf_rn(x.v[i], x.v[i], squares);
      }
    });
    const float scale = 1.0f / sqrtf(row_sum(squares) / D + eps);
    for_each([&](int, Float8& x) {
#pragma unroll
      for (int i = 0; i < 8; ++i) x.v[i] *= scale;
    });
  }

 private:
  __device__ static float add8(const Float8& x) {
    return ((x.v[0] + x.v[1]) + (x.v[2] + x.v[3])) + ((x.v[4] + x.v[5]) + (x.v[6] + x.v[7]));
  }

  __device__ static float row_sum(float value) {
    value = lanes_sum<32>(value);
    if constexpr (Threads > 32) {
      __shared__ float parts[32];  // one for each warp of the block
      __syncthreads();             // the previous sum has been read
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
      __syncthreads();
      const float* mine = parts + threadIdx.x / Threads * (Threads / 32);
      value = 0;
#pragma unroll
      for (int i = 0; i < Threads / 32; ++i) value += mine[i];
    }
    return value;
  }

  Float8 values_[kSteps];
};
