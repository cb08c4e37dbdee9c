// out = LN(x) * weight + bias for a residual stream x.
//
//! entry  layer_norm
//! launch dependent
//! param  X           word  fp32 bf16 fp16        elements of x
//! param  O           word  fp32 bf16 fp16        elements of out
//! param  D           int   8..16384 step 8       columns
//! param  ROW_THREADS int   32..512 step 32       tile: threads of one row, a power of two
//! param  ROWS        int   1..16                 tile: rows of a block
//!
//! arg    x           ptr                         [rows, D] X: residual.cuh
//! arg    x_low       ptr                         [rows, D] X, null with fp32
//! arg    weight      ptr                         [D] fp32
//! arg    bias        ptr                         [D] fp32, or null: none is added
//! arg    out         ptr                         [rows, D] O, written
//! arg    eps         f32                         added to the variance
//! arg    rows        i32                         may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes.
// Launch: grid.x = ceil(rows / ROWS), block.x = ROWS * ROW_THREADS. No dynamic shared memory.
#include "dependent_launch.cuh"
#include "norm.cuh"
#include "residual.cuh"

constexpr int kThreads = ROWS * ROW_THREADS;

extern "C" __global__ void __launch_bounds__(kThreads, norm_blocks(kThreads))
    layer_norm(X* x, X* x_low, const float* weight, const float* bias, O* out, float eps,
               int rows) {
  let_next_kernel_start();
  NormRow<D, ROW_THREADS> factors;
  factors.for_each([&](int column, Float8& v) { v = load8(weight + column); });
  wait_for_kernels_before();
  const int row = blockIdx.x * ROWS + threadIdx.x / ROW_THREADS;
  const bool inside = row < rows;  // threads outside take part in the barriers of normalize()
  const long long at = static_cast<long long>(inside ? row : 0) * D;
  const ResidualStream<X> stream{x, x_low};

  NormRow<D, ROW_THREADS> values;
  values.for_each([&](int column, Float8& v) { v = stream.load8(at + column); });
  values.normalize(eps);
  if (!inside) return;
  values.for_each_with(factors, [&](int column, const Float8& v, const Float8& factor) {
    store8(out + at + column,
           bias != nullptr ? scale_and_add(v, factor, load8(bias + column)) : scale(v, factor));
  });
}
