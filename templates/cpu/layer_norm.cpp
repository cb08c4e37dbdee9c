// out = LN(x) * weight + bias.
//
//! entry layer_norm
//! param O      word  fp32 bf16              element type of out
//! param D      int   8..65536 step 8        hidden size
//! arg x       ptr   [rows, D] fp32
//! arg weight  ptr   [D] fp32
//! arg bias    ptr   [D] fp32, or null: none is added
//! arg out     ptr   [rows, D] O
//! arg eps     f32
//! arg rows    i32   may be 0
//
// Launch: any number of blocks, each with an equal share of the rows.
#include "norm.h"

extern "C" void layer_norm(const fp32* x, const fp32* weight, const fp32* bias, O* out, fp32 eps,
                           int rows, Block block) {
  const Range range = share_of(rows, block.x, block.nx);
  for (long long row = range.begin; row < range.end; ++row) {
    const fp32* x_row = x + row * D;
    O* out_row = out + row * D;
    const Moments moments = moments_of<D>(x_row, eps);
    for_vectors<D>([&](int i, auto n) {
      Vec value = normalize(load(x_row + i, n), moments) * load(weight + i, n);
      if (bias != nullptr) value += load(bias + i, n);
      store(out_row + i, value, n);
    });
  }
}
