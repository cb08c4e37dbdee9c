// The step from the encoder to the decision head: x = LN(x) * weight + type_table[type],
// then out = LN(x) * norm_weight + norm_bias, the first norm of the head.
//
//! entry final_norm
//! param T      word  fp32 bf16              element type of out
//! param D      int   8..65536 step 8        hidden size
//! arg x            ptr   [rows, D] fp32, in and out
//! arg x_low        ptr   null: only GPUs keep x in two parts
//! arg weight       ptr   [D] fp32
//! arg type_table   ptr   [3, D] fp32
//! arg types        ptr   [rows] i32, each 0..2
//! arg norm_weight  ptr   [D] fp32
//! arg norm_bias    ptr   [D] fp32
//! arg out          ptr   [rows, D] T
//! arg eps          f32
//! arg rows         i32   may be 0
//
// Launch: any number of blocks, each with an equal share of the rows.
#include "norm.h"

extern "C" void final_norm(fp32* x, void*, const fp32* weight, const fp32* type_table,
                           const int* types, const fp32* norm_weight, const fp32* norm_bias, T* out,
                           fp32 eps, int rows, Block block) {
  const Range range = share_of(rows, block.x, block.nx);
  for (long long row = range.begin; row < range.end; ++row) {
    fp32* x_row = x + row * D;
    const fp32* type = type_table + static_cast<long long>(types[row]) * D;
    T* out_row = out + row * D;
    const Moments encoder = moments_of<D>(x_row, eps);
    for_vectors<D>([&](int i, auto n) {
      const Vec value = normalize(load(x_row + i, n), encoder) * load(weight + i, n);
      store(x_row + i, value + load(type + i, n), n);
    });
    const Moments head = moments_of<D>(x_row, eps);
    for_vectors<D>([&](int i, auto n) {
      const Vec value = normalize(load(x_row + i, n), head) * load(norm_weight + i, n);
      store(out_row + i, value + load(norm_bias + i, n), n);
    });
  }
}
