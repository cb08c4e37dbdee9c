// out = gelu(u) * g with u = a * w[:N]^T and g = a * w[N:]^T, for weights that pack_weight laid out
// in panels of NR columns: first NR / 2 of u, then the same ones of g.
//
//! entry gemm_geglu
//! param T     word  fp32 bf16               element type of a, w and out
//! param N     int   8..1048576 step 8       columns of out
//! param K     int   8..1048576 step 8       columns of a
//! param NR    int   8..128 step 8           columns of a panel: a multiple of the vector width
//! param MR    int   1..24                   most rows of a register tile
//! param PART  int   4096..1048576 step 4096 bytes of a panel that stay in the L2 cache
//! param FETCH int   0..1048576 step 4096    the next panel is fetched if it has at most so many bytes
//! arg a     ptr   [rows, K] T
//! arg w     ptr   [ceil(N / (NR / 2)), K, NR] T, packed; columns past N are zero
//! arg out   ptr   [rows, N] T
//! arg rows  i32   may be 0
//
// Launch: any multiple of ceil(N / (NR / 2)) blocks, each with one panel and an equal share of the
// rows, as in gemm.
#include "register_tile.h"
#include "vector_math.h"

static_assert(NR % kWidth == 0, "panels are whole vectors");
static_assert(MR * (NR / kWidth) <= kAccumulators, "the register tile spills");

namespace {

constexpr int kColumns = NR / 2;  ///< of out, per panel

/// Writes COLUMNS columns of a finished tile. Not inlined: one copy serves tiles of every height.
template <int COLUMNS>
__attribute__((noinline)) void write_tile(const fp32* tile, T* out, int rows) {
  for (int row = 0; row < rows; ++row) {
    for_vectors<COLUMNS>([&](int i, auto n) {
      const fp32* u = tile + row * NR + i;
      store(out + static_cast<long long>(row) * N + i, gelu<T>(load(u, n)) * load(u + kColumns, n),
            n);
    });
  }
}

}  // namespace

extern "C" void gemm_geglu(const T* a, const T* w, T* out, int rows, Block block) {
  constexpr int kPanels = (N + kColumns - 1) / kColumns;
  constexpr PanelProduct kProduct = {K, NR, kPanels, NR, MR, PART, FETCH};
  multiply_panel<kProduct>(
      a, w, rows, block, [=](int panel, int first, int count, const fp32* tile) {
        T* to = out + static_cast<long long>(first) * N + panel * kColumns;
        with_columns<N, kColumns>(
            panel, [=](auto columns) { write_tile<columns.value>(tile, to, count); });
      });
}
