// x += a * w^T + bias: a product that ends a branch of the residual stream x (residual.cuh), and
// moments of the rows of x (moments.cuh), for the product that normalizes them next.
//
//! entry  gemm_residual
//! launch dependent
//! param  T      word  fp32 bf16 fp16             elements of a, w and x
//! param  N      int   32..1048576 step 32        columns of x
//! param  K      int   8..1048576 step 8          columns of a and w
//! param  BM     int   16..256 step 16            tile: rows of a block
//! param  BN     int   32..256 step 32            tile: columns of a block
//! param  WM     int   8..128 step 8              tile: rows of a warp, 16 bits: step 16
//! param  WN     int   8..128 step 8              tile: columns of a warp, 16 bits: step 16
//! param  STAGES int   2..24                      tile: slabs of 128 bytes of k in flight
//!
//! arg    a       ptr                             [rows, K] T
//! arg    w       ptr                             [N, K] T
//! arg    bias    ptr                             [N] fp32, or null: none is added
//! arg    x       ptr                             [rows, N] T
//! arg    x_low   ptr                             [rows, N] T, null with fp32
//! arg    new_x   ptr                             x, updated
//! arg    new_x_low ptr                           x_low, updated
//! arg    moments ptr                             [N / 32, R8, 2] fp32, written
//! arg    rows    i32                             may be 0 (with an empty grid)
//
// All pointers are aligned to 16 bytes.
// Launch and dynamic shared memory: as gemm.
#include "moments.cuh"
#include "product_tile.cuh"

using Shape = TileShape<BM, BN, WM, WN, STAGES>;

extern "C" __global__ void __launch_bounds__(Shape::kThreads)
    gemm_residual(const T* a, const T* w, const float* bias, T* x, T* x_low, T* new_x, T* new_x_low,
                  float* moments, int rows) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kUnits = BN / 8;  // 8 columns of one row are one thread's work
  constexpr int kStep = Shape::kThreads / kUnits;
  static_assert(Shape::kThreads % kUnits == 0, "a thread keeps its columns");

  const auto [m0, n0, tile_rows, sums] = block_tile<T, Shape, N, K, 1>(a, w, rows, shared);

  // Threads behind the last row or column go along, for the lanes that they share a group with.
  const int column = threadIdx.x % kUnits * 8;
  const bool has_column = N % BN == 0 || n0 + column < N;
  const Float8 offset = bias != nullptr && has_column ? load8(bias + n0 + column) : zero8();
  const long long pitch = moment_rows(rows);
  const ResidualStream<T> old{x, x_low}, updated{new_x, new_x_low};
#pragma unroll 1
  for (int first = 0; first < tile_rows; first += kStep) {
    const int row = first + threadIdx.x / kUnits;
    const bool is_inside = has_column && row < tile_rows;
    const long long at = static_cast<long long>(m0 + row) * N + n0 + column;
    Float8 value = zero8();
    if (is_inside) {
      value = add(old.load8(at), add(load8(sums + row * Shape::kPitch + column), offset));
      updated.store8(at, value);
    }
    const float2 group = group_moments<4>(value.v);
    if (is_inside && threadIdx.x % 4 == 0) {
      const long long group_row = (n0 + column) / kMomentColumns * pitch + (m0 + row);
      reinterpret_cast<float2*>(moments)[group_row] = group;
    }
  }
}
