// The step from the encoder to the decision head: x = LN(x) * weight + type_table[type],
// which becomes the head's residual stream, and out = LN(x) * norm_weight + norm_bias, the input
// of the head's first layer.
//
//! entry  final_norm
//! launch dependent
//! param  T           word  fp32 bf16 fp16        elements of out and x
//! param  D           int   8..16384 step 8       columns
//! param  ROW_THREADS int   32..512 step 32       tile: threads of one row, a power of two
//! param  ROWS        int   1..16                 tile: rows of a block
//!
//! arg    x           ptr                         [rows, D] T, replaced: residual.cuh
//! arg    x_low       ptr                         [rows, D] T, replaced; null with fp32
//! arg    weight      ptr                         [D] fp32
//! arg    type_table  ptr                         [3, D] fp32
//! arg    types       ptr                         [rows] i32, rows of type_table
//! arg    norm_weight ptr                         [D] fp32
//! arg    norm_bias   ptr                         [D] fp32
//! arg    out         ptr                         [rows, D] T, written
//! arg    eps         f32                         added to both variances
//! arg    rows        i32                         may be 0 (with an empty grid)
//
// Pointers to rows are aligned to 16 bytes.
// Launch: grid.x = ceil(rows / ROWS), block.x = ROWS * ROW_THREADS. No dynamic shared memory.
#include "dependent_launch.cuh"
#include "norm.cuh"
#include "residual.cuh"

enum : int { kThreads = ROWS * ROW_THREADS };

extern "C" __global__ void __launch_bounds__(kThreads, norm_blocks(kThreads))
    final_norm(T* x, T* x_low, const float* weight, const float* type_table, const int* types,
               const float* norm_weight, const float* norm_bias, T* out, float eps, int rows) {
  let_next_kernel_start();
  wait_for_kernels_before();
  const int row = blockIdx.x * ROWS + threadIdx.x / ROW_THREADS;
  const bool inside = row < rows;  // threads outside take part in the barriers of normalize()
  const long long at = static_cast<long long>(inside ? row : 0) * D;
  const ResidualStream<T> stream{x, x_low};
  const float* type = type_table + static_cast<long long>(inside ? types[row] : 0) * D;

  NormRow<D, ROW_THREADS> values;
  values.for_each([&](int column, Float8& v) { v = stream.load8(at + column); });
  values.normalize(eps);
  values.for_each([&](int column, Float8& v) {
    v = scale_and_add(v, load8(weight + column), load8(type + column));
    if (inside) stream.store8(at + column, v);
  });
  values.normalize(eps);
  if (!inside) return;
  values.for_each([&](int column, const Float8& v) {
    store8(out + at + column,
           scale_and_add(v, load8(norm_weight + column), load8(norm_bias + column)));
  });
}
