// scales = what a product that normalizes its rows multiplies them by, from moments of the rows
// (moments.cuh). For many rows, where each block of a product has many tiles and would look at the
// moments of a row once for every tile.
//
//! entry  row_scales
//! launch dependent
//! param  T       word  fp32 bf16 fp16             elements of the rows
//! param  D       int   32..1048576 step 32        columns of the rows
//!
//! arg    moments ptr                              [D / 32, R8, 2] fp32
//! arg    scales  ptr                              [rows] fp32, written
//! arg    eps     f32                              added to the variance
//! arg    rows    i32                              may be 0 (with an empty grid)
//
// Launch: grid.x = ceil(rows / 64), block.x = 256. No dynamic shared memory.
#include "moments.cuh"

extern "C" __global__ void __launch_bounds__(256)
    row_scales(const float* moments, float* scales, float eps, int rows) {
  let_next_kernel_start();
  wait_for_kernels_before();
  const int row = blockIdx.x * 64 + threadIdx.x / 4;
  RowMoments<T, D> mine;
  mine.load(moments, min(row, rows - 1), rows);
  const float scale = mine.scale(moments, eps);
  if (threadIdx.x % 4 == 0 && row < rows) scales[row] = scale;
}
