// x = LN(table[ids]) * weight, the residual stream, and a = x in T as the first layer's input.
//
//! entry  embed_norm
//! param  E           word  fp32 bf16 fp16        elements of table
//! param  T           word  fp32 bf16 fp16        elements of a and x
//! param  D           int   8..16384 step 8       columns
//! param  ROW_THREADS int   32..512 step 32       tile: threads of one row, a power of two
//! param  ROWS        int   1..16                 tile: rows of a block
//!
//! arg    ids         ptr                         [rows] i32, rows of table
//! arg    table       ptr                         [V, D] E
//! arg    weight      ptr                         [D] fp32
//! arg    x           ptr                         [rows, D] T, written: residual.cuh
//! arg    x_low       ptr                         [rows, D] T, written; null with fp32
//! arg    a           ptr                         [rows, D] T, written
//! arg    eps         f32                         added to the variance
//! arg    rows        i32                         may be 0 (with an empty grid)
//
// Pointers to rows are aligned to 16 bytes.
// Launch: grid.x = ceil(rows / ROWS), block.x = ROWS * ROW_THREADS. No dynamic shared memory.
#include "norm.cuh"
#include "residual.cuh"

enum : int { kThreads = ROWS * ROW_THREADS };

extern "C" __global__ void __launch_bounds__(kThreads, norm_blocks(kThreads))
    embed_norm(const int* ids, const E* table, const float* weight, T* x, T* x_low, T* a, float eps,
               int rows) {
  const int row = blockIdx.x * ROWS + threadIdx.x / ROW_THREADS;
  const long long at = static_cast<long long>(row) * D;
  const bool inside = row < rows;  // threads outside take part in the barriers of normalize()
  const ResidualStream<T> stream{x, x_low};
  const E* source = table + static_cast<long long>(inside ? ids[row] : 0) * D;

  NormRow<D, ROW_THREADS> values;
  values.for_each([&](int column, Float8& v) { v = load8(source + column); });
  values.normalize(eps);
  if (!inside) return;
  values.for_each([&](int column, Float8& v) {
    const Float8 result = scale(v, load8(weight + column));
    stream.store8(at + column, result);
    store8(a + at + column, result);
  });
}
