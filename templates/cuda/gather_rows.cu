// a_out = a[index] and x_out = x[index]: the few rows that the last layers still need, of the
// activations and of the residual stream.
//
//! entry  gather_rows
//! launch dependent
//! param  T      word  fp32 bf16 fp16             elements of a and x
//! param  D      int   8..16777216 step 8         columns
//!
//! arg    index  ptr                              [n] i32, rows of a and x
//! arg    a      ptr                              [rows, D] T
//! arg    x      ptr                              [rows, D] T: residual.cuh
//! arg    x_low  ptr                              [rows, D] T, null with fp32
//! arg    a_out  ptr                              [n, D] T, written
//! arg    x_out  ptr                              [n, D] T, written
//! arg    x_low_out  ptr                          [n, D] T, written; null with fp32
//! arg    n      i32                              may be 0 (with an empty grid)
//
// Pointers to rows are aligned to 16 bytes.
// Launch: grid.x = n, any one-dimensional block. No dynamic shared memory.
#include "dependent_launch.cuh"
#include "types.cuh"

__device__ inline void copy_row(T* to, const T* from) {
  constexpr int kChunk = 16 / T_BYTES;
  for (int at = threadIdx.x * kChunk; at < D; at += blockDim.x * kChunk) {
    *reinterpret_cast<float4*>(to + at) = *reinterpret_cast<const float4*>(from + at);
  }
}

extern "C" __global__ void gather_rows(const int* index, const T* a, const T* x, const T* x_low,
                                       T* a_out, T* x_out, T* x_low_out, int n) {
  let_next_kernel_start();
  wait_for_kernels_before();
  const long long to = blockIdx.x;
  if (to >= n) return;
  const long long from = index[to];
  copy_row(a_out + to * D, a + from * D);
  copy_row(x_out + to * D, x + from * D);
  if constexpr (!kIsFp32<T>) copy_row(x_low_out + to * D, x_low + from * D);
}
