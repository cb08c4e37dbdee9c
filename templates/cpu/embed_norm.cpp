// x = LN(table[ids]) * weight in fp32, and a = x in the compute dtype.
//
//! entry embed_norm
//! param E    word  fp32 bf16 fp16           element type of table
//! param T    word  fp32 bf16                element type of a
//! param D    int   8..65536 step 8          hidden size
//! arg ids     ptr   [rows] i32, each below the rows of table
//! arg table   ptr   [V, D] E
//! arg weight  ptr   [D] fp32
//! arg x       ptr   [rows, D] fp32, out
//! arg x_low   ptr   null: only GPUs keep x in two parts
//! arg a       ptr   [rows, D] T, out
//! arg eps     f32
//! arg rows    i32   may be 0
//
// Launch: any number of blocks, each with an equal share of the rows.
#include "norm.h"

extern "C" void embed_norm(const int* ids, const E* table, const fp32* weight, fp32* x, void*, T* a,
                           fp32 eps, int rows, Block block) {
  const Range range = share_of(rows, block.x, block.nx);
  for (long long row = range.begin; row < range.end; ++row) {
    const E* embedding = table + static_cast<long long>(ids[row]) * D;
    fp32* x_row = x + row * D;
    T* a_row = a + row * D;
    for_vectors<D>([&](int i, auto n) { store(x_row + i, load(embedding + i, n), n); });
    const Moments moments = moments_of<D>(x_row, eps);
    for_vectors<D>([&](int i, auto n) {
      const Vec value = normalize(load(x_row + i, n), moments) * load(weight + i, n);
      store(x_row + i, value, n);
      store(a_row + i, value, n);
    });
  }
}
