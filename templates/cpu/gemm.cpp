// out = act(a * w^T + bias), for weights that pack_weight laid out in panels.
//
//! entry gemm
//! param T     word  fp32 bf16               element type of a, w and out
//! param N     int   8..1048576 step 8       columns of out
//! param K     int   8..1048576 step 8       columns of a
//! param ACT   word  none relu gelu          activation; gelu is exact
//! param NR    int   4..128 step 4           columns of a panel: a multiple of the vector width
//! param MR    int   1..24                   most rows of a register tile
//! param PART  int   4096..1048576 step 4096 bytes of a panel that stay in the L2 cache
//! param FETCH int   0..1048576 step 4096    the next panel is fetched if it has at most so many bytes
//! arg a     ptr   [rows, K] T
//! arg w     ptr   [ceil(N / NR), K, NR] T, packed; columns past N are zero
//! arg bias  ptr   [N] fp32, or null: none is added
//! arg out   ptr   [rows, N] T
//! arg rows  i32   may be 0
//
// Launch: any multiple of ceil(N / NR) blocks. Each works on one panel and an equal share of the
// rows; blocks of the same rows follow each other, so that these rows stay in the cache while the
// panels stream through it.
#include "register_tile.h"
#include "vector_math.h"

static_assert(NR % kWidth == 0, "panels are whole vectors");
static_assert(MR * (NR / kWidth) <= kAccumulators, "the register tile spills");

namespace {

inline Vec activate(Vec x) {
  if constexpr (ACT == ACT_relu) return max(x, 0);
  if constexpr (ACT == ACT_gelu) return gelu<T>(x);
  return x;
}

/// Writes COLUMNS columns of a finished tile. Not inlined: one copy serves tiles of every height.
template <int COLUMNS>
__attribute__((noinline)) void write_tile(const fp32* tile, const fp32* bias, T* out, int rows) {
  for (int row = 0; row < rows; ++row) {
    for_vectors<COLUMNS>([&](int i, auto n) {
      const Vec x = load(tile + row * NR + i, n) + load(bias + i, n);
      store(out + static_cast<long long>(row) * N + i, activate(x), n);
    });
  }
}

}  // namespace

extern "C" void gemm(const T* a, const T* w, const fp32* bias, T* out, int rows, Block block) {
  constexpr int kPanels = (N + NR - 1) / NR;
  constexpr int kLast = N - (kPanels - 1) * NR;
  constexpr PanelProduct kProduct = {K, NR, kPanels, kLast, MR, PART, FETCH};
  multiply_panel<kProduct>(
      a, w, rows, block, [=](int panel, int first, int count, const fp32* tile) {
        const fp32* added = panel_bias<NR>(bias, panel);
        T* to = out + static_cast<long long>(first) * N + panel * NR;
        with_columns<N, NR>(
            panel, [=](auto columns) { write_tile<columns.value>(tile, added, to, count); });
      });
}
