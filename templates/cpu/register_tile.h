// Small matrix products whose result stays in vector registers: the core of every GEMM here and of
// attention. All of them add in ascending k, in one chain per output, so that a result does not
// depend on how rows and columns are cut into tiles.
#pragma once

#include "vectors.h"

namespace {

/// The result of a product: ROWS rows of VECTORS vectors.
template <int ROWS, int VECTORS>
struct RegisterTile {
  Vec at[ROWS][VECTORS];

  /// at[i][v] += sum over k < count of a[i * A_ROW + k * A_STEP] * b[k * B_STEP + v * kWidth].
  template <int A_ROW, int A_STEP, int B_STEP>
  inline void multiply(const fp32* a, const fp32* b, int count) {
#pragma clang loop unroll_count(2)
    for (int k = 0; k < count; ++k) {
      Vec column[VECTORS];
#pragma clang loop unroll(full)
      for (int v = 0; v < VECTORS; ++v) column[v] = load(b + v * kWidth);
#pragma clang loop unroll(full)
      for (int i = 0; i < ROWS; ++i) {
        const Vec factor = a[i * A_ROW];
#pragma clang loop unroll(full)
        for (int v = 0; v < VECTORS; ++v) at[i][v] = fma(factor, column[v], at[i][v]);
      }
      a += A_STEP;
      b += B_STEP;
    }
  }

  /// Row i becomes from[i * STRIDE ...] * factors[i].
  template <int STRIDE>
  inline void load_scaled(const fp32* from, const fp32* factors) {
#pragma clang loop unroll(full)
    for (int i = 0; i < ROWS; ++i) {
#pragma clang loop unroll(full)
      for (int v = 0; v < VECTORS; ++v) {
        at[i][v] = load(from + i * STRIDE + v * kWidth) * factors[i];
      }
    }
  }

  /// Writes row i to to[i * STRIDE ...].
  template <int STRIDE>
  inline void store_to(fp32* to) const {
#pragma clang loop unroll(full)
    for (int i = 0; i < ROWS; ++i) {
#pragma clang loop unroll(full)
      for (int v = 0; v < VECTORS; ++v) store(to + i * STRIDE + v * kWidth, at[i][v]);
    }
  }
};

/// Calls f(Count<n>()) for the run-time number n in 1..MAX.
template <int MAX, class F>
inline void with_count(int n, F f) {
  if constexpr (MAX > 1) {
    if (n < MAX) return with_count<MAX - 1>(n, f);
  }
  f(Count<MAX>());
}

/// Cuts rows into as few tiles of at most MAX rows as possible, all of one size but the last, and
/// calls f(first row, Count of rows) for each.
template <int MAX, class F>
inline void for_tiles(Range rows, F f) {
  const int total = rows.end - rows.begin;
  if (total <= 0) return;
  const int tiles = (total + MAX - 1) / MAX;
  const int size = (total + tiles - 1) / tiles;
  for (int first = rows.begin; first < rows.end; first += size) {
    const int left = rows.end - first;
    with_count<MAX>(left < size ? left : size, [&](auto n) { f(first, n); });
  }
}

}  // namespace
