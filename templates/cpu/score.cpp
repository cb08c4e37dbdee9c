// logits = h * weight + bias: the last layer of the scorer, one dot product per option.
//
//! entry score
//! param D    int   8..65536 step 8          hidden size
//! arg h       ptr   [n, D] fp32
//! arg weight  ptr   [D] fp32
//! arg bias    ptr   [1] fp32
//! arg logits  ptr   [n] fp32
//! arg n       i32   may be 0
//
// Launch: any number of blocks, each with an equal share of the rows.
#include "vectors.h"

extern "C" void score(const fp32* h, const fp32* weight, const fp32* bias, fp32* logits, int n,
                      Block block) {
  const Range range = share_of(n, block.x, block.nx);
  for (long long row = range.begin; row < range.end; ++row) {
    logits[row] = dot<D>(h + row * D, weight) + bias[0];
  }
}
