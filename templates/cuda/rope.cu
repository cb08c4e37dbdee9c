// Rotary position embedding in place on the q and k parts of packed qkv, in the rotate-half
// convention: with x = [x1, x2] the halves of a head, [x1 cos - x2 sin, x2 cos + x1 sin].
// Computed in fp32 and rounded once.
//
//! entry  rope
//! launch dependent
//! param  T         word  fp32 bf16 fp16          elements of qkv
//! param  HEADS     int   1..1024
//! param  HEAD_DIM  int   16..256 step 16
//! param  ROWS      int   1..256                  tile: rows of a block
//!
//! arg    qkv       ptr                           [rows, 3 * HEADS * HEAD_DIM] T, updated
//! arg    cos       ptr                           [P, HEAD_DIM / 2] fp32
//! arg    sin       ptr                           [P, HEAD_DIM / 2] fp32
//! arg    positions ptr                           [rows] i32, rows of cos and sin
//! arg    rows      i32                           may be 0 (with an empty grid)
//
// Pointers to rows are aligned to 16 bytes.
// Launch: grid.x = ceil(rows / ROWS), block.x = 256. No dynamic shared memory.
#include "dependent_launch.cuh"
#include "types.cuh"

extern "C" __global__ void __launch_bounds__(256)
    rope(T* qkv, const float* cos, const float* sin, const int* positions, int rows) {
  constexpr int kHalf = HEAD_DIM / 2;
  constexpr int kHeadUnits = kHalf / 8;              // 8 columns of x1 and of x2 each
  constexpr int kRowUnits = 2 * HEADS * kHeadUnits;  // q's heads, then k's
  let_next_kernel_start();
  wait_for_kernels_before();
  const int first = blockIdx.x * ROWS;
  const int units = min(ROWS, rows - first) * kRowUnits;
  for (int unit = threadIdx.x; unit < units; unit += 256) {
    const int row = first + unit / kRowUnits;
    const int head = unit % kRowUnits / kHeadUnits, column = unit % kHeadUnits * 8;
    T* at = qkv + static_cast<long long>(row) * (3 * HEADS * HEAD_DIM) + head * HEAD_DIM + column;
    const long long angle = static_cast<long long>(positions[row]) * kHalf + column;
    const Float8 c = load8(cos + angle), s = load8(sin + angle);
    const Float8 x1 = load8(at), x2 = load8(at + kHalf);
    Float8 y1, y2;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      y1.v[i] = x1.v[i] * c.v[i] - x2.v[i] * s.v[i];
      y2.v[i] = x2.v[i] * c.v[i] + x1.v[i] * s.v[i];
    }
    store8(at, y1);
    store8(at + kHalf, y2);
  }
}
