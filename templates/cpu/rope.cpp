// Rotary position embedding of q and k in place, rotate-half: the pair (v[i], v[i + HEAD_DIM / 2])
// of each head turns by the angle whose cosine and sine are in row `position` of the tables.
//
//! entry rope
//! param T         word  fp32 bf16           element type of qkv
//! param HEADS     int   1..1024
//! param HEAD_DIM  int   8..1024 step 8
//! arg qkv        ptr   [rows, 3, HEADS, HEAD_DIM] T: q, k, v; in and out
//! arg cos        ptr   [P, HEAD_DIM / 2] fp32
//! arg sin        ptr   [P, HEAD_DIM / 2] fp32
//! arg positions  ptr   [rows] i32, each below P
//! arg rows       i32   may be 0
//
// Launch: any number of blocks, each with an equal share of the rows.
#include "vectors.h"

extern "C" void rope(T* qkv, const fp32* cos, const fp32* sin, const int* positions, int rows,
                     Block block) {
  constexpr int kHalf = HEAD_DIM / 2;
  const Range range = share_of(rows, block.x, block.nx);
  for (long long row = range.begin; row < range.end; ++row) {
    const fp32* c = cos + static_cast<long long>(positions[row]) * kHalf;
    const fp32* s = sin + static_cast<long long>(positions[row]) * kHalf;
    T* heads = qkv + row * 3 * HEADS * HEAD_DIM;
    for (int head = 0; head < 2 * HEADS; ++head) {
      T* v = heads + head * HEAD_DIM;
      for_vectors<kHalf>([&](int i, auto n) {
        const Vec first = load(v + i, n), second = load(v + kHalf + i, n);
        const Vec cosine = load(c + i, n), sine = load(s + i, n);
        store(v + i, fma(first, cosine, -second * sine), n);
        store(v + kHalf + i, fma(second, cosine, first * sine), n);
      });
    }
  }
}
