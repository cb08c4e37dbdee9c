// a_out = a[index] and x_out = x[index]: the few rows that the last layers still need, of the
// activations and of the residual stream.
//
//! entry  gather_rows
//! launch dependent
//! param  T      word  fp32 bf16 fp16             elements of a
//! param  D      int   8..16777216 step 8         columns
//!
//! arg    index  ptr                              [n] i32, rows of a and x
//! arg    a      ptr                              [rows, D] T
//! arg    x      ptr                              [rows, D] fp32
//! arg    a_out  ptr                              [n, D] T, written
//! arg    x_out  ptr                              [n, D] fp32, written
//! arg    n      i32                              may be 0 (with an empty grid)
//
// Pointers to rows are aligned to 16 bytes.
// Launch: grid.x = n, any one-dimensional block. No dynamic shared memory.
#include "dependent_launch.cuh"
#include "types.cuh"

__device__ inline void copy_row(void* to, const void* from, int bytes) {
  for (int at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16) {
    const float4 chunk = *reinterpret_cast<const float4*>(static_cast<const char*>(from) + at);
    *reinterpret_cast<float4*>(static_cast<char*>(to) + at) = chunk;
  }
}

extern "C" __global__ void gather_rows(const int* index, const T* a, const float* x, T* a_out,
                                       float* x_out, int n) {
  let_next_kernel_start();
  wait_for_kernels_before();
  const long long to = blockIdx.x;
  if (to >= n) return;
  const long long from = index[to];
  copy_row(a_out + to * D, a + from * D, D * T_BYTES);
  copy_row(x_out + to * D, x + from * D, D * 4);
}
