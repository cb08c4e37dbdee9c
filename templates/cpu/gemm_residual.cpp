// x += a * w^T + bias: a product that ends in the residual stream. Weights are packed as for gemm.
//
//! entry gemm_residual
//! param T     word  fp32 bf16               element type of a and w
//! param N     int   8..1048576 step 8       columns of x
//! param K     int   8..1048576 step 8       columns of a
//! param NR    int   4..128 step 4           columns of a panel: a multiple of the vector width
//! param MR    int   1..24                   most rows of a register tile
//! param PART  int   4096..1048576 step 4096 bytes of a panel that stay in the L2 cache
//! param FETCH int   0..1048576 step 4096    the next panel is fetched if it has at most so many bytes
//! arg a     ptr   [rows, K] T
//! arg w     ptr   [ceil(N / NR), K, NR] T, packed; columns past N are zero
//! arg bias  ptr   [N] fp32, or null: none is added
//! arg x     ptr   [rows, N] fp32, in and out
//! arg rows  i32   may be 0
//
// Launch: any multiple of ceil(N / NR) blocks, each with one panel and an equal share of the rows,
// as in gemm.
#include "register_tile.h"

static_assert(NR % kWidth == 0, "panels are whole vectors");
static_assert(MR * (NR / kWidth) <= kAccumulators, "the register tile spills");

namespace {

/// Adds COLUMNS columns of a finished tile. Not inlined: one copy serves tiles of every height.
template <int COLUMNS>
__attribute__((noinline)) void add_tile(const fp32* tile, const fp32* bias, fp32* x, int rows) {
  for (int row = 0; row < rows; ++row) {
    for_vectors<COLUMNS>([&](int i, auto n) {
      fp32* to = x + static_cast<long long>(row) * N + i;
      const Vec delta = load(tile + row * NR + i, n) + load(bias + i, n);
      store(to, load(to, n) + delta, n);
    });
  }
}

}  // namespace

extern "C" void gemm_residual(const T* a, const T* w, const fp32* bias, fp32* x, int rows,
                              Block block) {
  constexpr int kPanels = (N + NR - 1) / NR;
  constexpr int kLast = N - (kPanels - 1) * NR;
  constexpr PanelProduct kProduct = {K, NR, kPanels, kLast, MR, PART, FETCH};
  multiply_panel<kProduct>(
      a, w, rows, block, [=](int panel, int first, int count, const fp32* tile) {
        const fp32* added = panel_bias<NR>(bias, panel);
        fp32* to = x + static_cast<long long>(first) * N + panel * NR;
        with_columns<N, NR>(panel,
                            [=](auto columns) { add_tile<columns.value>(tile, added, to, count); });
      });
}
