// Rewrites a weight into the panels that gemm and gemm_geglu read: NR columns of the result side by
// side, k by k, so that the inner loop of a product reads memory in a straight line. Of bf16 two
// values of k are side by side, as the instruction for its products wants them. The last panel is
// filled up with zeros.
//
//! entry pack_weight
//! param T      word  fp32 bf16              element type of w and packed
//! param GEGLU  word  no yes                 yes: w has 2n rows; see gemm_geglu for the panel
//! param NR     int   4..128 step 4          columns of a panel
//! arg w       ptr   [n, k] T, GEGLU: [2n, k]
//! arg packed  ptr   [ceil(n / columns), k, NR] T with columns = NR, GEGLU: NR / 2;
// Packed bf16 is [..., k / 2, NR, 2].
//! arg n       i32   columns of the product; may be 0
//! arg k       i32   columns of w, a multiple of 8
//
// Launch: any number of blocks, each with an equal share of the panels.
#include "types.h"

namespace {

constexpr int kColumns = GEGLU == GEGLU_yes ? NR / 2 : NR;  ///< of the product, per panel
constexpr int kPair = T_BYTES == 2 ? 2 : 1;                 ///< values of k side by side
constexpr int kStep = 8;  ///< values of k at a time: keeps what is written in the L1 cache

/// Row of w that column `i` of a panel holds, or -1 past the end.
inline int source_row(int panel, int i, int n) {
  const int column = panel * kColumns + i % kColumns;
  if (column >= n) return -1;
  return i < kColumns ? column : n + column;
}

void pack_panel(const T* w, T* packed, int panel, int n, int k) {
  for (int first = 0; first < k; first += kStep) {
    for (int i = 0; i < NR; ++i) {
      const int row = source_row(panel, i, n);
      const T* from = w + static_cast<long long>(row) * k + first;
      for (int j = 0; j < kStep; ++j) {
        T& to = packed[((first + j) / kPair * NR + i) * kPair + j % kPair];
        to = row < 0 ? T() : from[j];
      }
    }
  }
}

}  // namespace

extern "C" void pack_weight(const T* w, T* packed, int n, int k, Block block) {
  const Range panels = share_of((n + kColumns - 1) / kColumns, block.x, block.nx);
  for (int panel = panels.begin; panel < panels.end; ++panel) {
    pack_panel(w, packed + static_cast<long long>(panel) * k * NR, panel, n, k);
  }
}
