// a_out = a[index] and x_out = x[index]: the rows that the last layer still has to compute.
//
//! entry gather_rows
//! param T    word  fp32 bf16                element type of a and a_out
//! param D    int   8..65536 step 8          hidden size
//! arg index  ptr   [n] i32, each a row of a and x
//! arg a      ptr   [rows, D] T
//! arg x      ptr   [rows, D] fp32
//! arg x_low  ptr   null: only GPUs keep x in two parts
//! arg a_out  ptr   [n, D] T
//! arg x_out  ptr   [n, D] fp32
//! arg x_low_out  ptr   null
//! arg n      i32   may be 0
//
// Launch: any number of blocks, each with an equal share of the rows.
#include "types.h"

extern "C" void gather_rows(const int* index, const T* a, const fp32* x, void*, T* a_out,
                            fp32* x_out, void*, int n, Block block) {
  const Range range = share_of(n, block.x, block.nx);
  for (long long row = range.begin; row < range.end; ++row) {
    const long long from = index[row];
    __builtin_memcpy(a_out + row * D, a + from * D, D * sizeof(T));
    __builtin_memcpy(x_out + row * D, x + from * D, D * sizeof(fp32));
  }
}
