// logits = h * weight + bias: one dot product for each row, all in fp32; one warp a row.
//
//! entry  score
//! launch dependent
//! param  D       int  8..16777216 step 8         columns of h
//!
//! arg    h       ptr                             [n, D] fp32
//! arg    weight  ptr                             [D] fp32
//! arg    bias    ptr                             [1] fp32
//! arg    logits  ptr                             [n] fp32, written
//! arg    n       i32                             may be 0 (with an empty grid)
//
// Pointers to rows are aligned to 16 bytes.
// Launch: grid.x = ceil(n / 4), block.x = 128. No dynamic shared memory.
#include "dependent_launch.cuh"
#include "dot.cuh"

extern "C" __global__ void __launch_bounds__(128)
    score(const float* h, const float* weight, const float* bias, float* logits, int n) {
  let_next_kernel_start();
  wait_for_kernels_before();
  const int row = blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= n) return;
  const float sum = warp_dot<D>(h + static_cast<long long>(row) * D, weight);
  if (threadIdx.x % 32 == 0) logits[row] = sum + bias[0];
}
