// Small matrix products whose result stays in vector registers: the core of every GEMM here and of
// attention. All of them add in ascending k, in one chain per output, so that a result does not
// depend on how rows and columns are cut into tiles.
#pragma once

#include "vectors.h"

namespace {

/// What lies so far behind `from` in a panel comes into the L1 cache. Processors find a panel's
/// next lines by themselves, but too late for two FMAs a cycle. 6 KiB: 24 steps of a full tile, or
/// 290 such cycles, last as long as the L3 cache takes.
inline void fetch_ahead(const void* from) {
  constexpr int kAhead = 6 << 10;
  __builtin_prefetch(static_cast<const char*>(from) + kAhead);
}

/// A pair of bf16 numbers per lane, to be multiplied with another one: the processor does it in one
/// instruction, or both become fp32. Intel's servers with that instruction, which are those with
/// fp16, too, start one every second cycle, and four multiplications in fp32 meanwhile.
#if defined(__AVX512BF16__) && !defined(__AVX512FP16__)
typedef __bf16 Pairs __attribute__((vector_size(sizeof(Vec))));

inline Pairs pairs_of(VecUint bits) {
  return __builtin_bit_cast(Pairs, bits);
}

inline Vec add_products(Pairs a, Pairs b, Vec sum) {
  typedef fp32 Floats __attribute__((vector_size(sizeof(Vec))));
  return __builtin_bit_cast(Vec,
                            __builtin_ia32_dpbf16ps_512(__builtin_bit_cast(Floats, sum), a, b));
}
#else
struct Pairs {
  Vec first, second;
};

inline Pairs pairs_of(VecUint bits) {
  return {__builtin_bit_cast(Vec, bits << 16), __builtin_bit_cast(Vec, bits & 0xffff0000)};
}

/// sum + a.first * b.first + a.second * b.second, in this order.
inline Vec add_products(Pairs a, Pairs b, Vec sum) {
  return fma(a.second, b.second, fma(a.first, b.first, sum));
}
#endif

inline Pairs load_pairs(const bf16* from) {
  VecUint bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return pairs_of(bits);
}

inline Pairs repeat_pair(const bf16* from) {
  unsigned bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  return pairs_of(bits);
}

/// The result of a product: ROWS rows of VECTORS vectors.
template <int ROWS, int VECTORS>
struct RegisterTile {
  Vec at[ROWS][VECTORS];

  /// at[i][v] += a[i * A_ROW] * b[v * kWidth].
  template <int A_ROW>
  inline void add_step(const fp32* a, const fp32* b) {
    Vec column[VECTORS];
#pragma clang loop unroll(full)
    for (int v = 0; v < VECTORS; ++v) column[v] = load(b + v * kWidth);
#pragma clang loop unroll(full)
    for (int i = 0; i < ROWS; ++i) {
      const Vec factor = a[i * A_ROW];
#pragma clang loop unroll(full)
      for (int v = 0; v < VECTORS; ++v) at[i][v] = fma(factor, column[v], at[i][v]);
    }
  }

  /// Of bf16: two k, which lie side by side in both.
  template <int A_ROW>
  inline void add_step(const bf16* a, const bf16* b) {
    Pairs column[VECTORS];
#pragma clang loop unroll(full)
    for (int v = 0; v < VECTORS; ++v) column[v] = load_pairs(b + 2 * v * kWidth);
#pragma clang loop unroll(full)
    for (int i = 0; i < ROWS; ++i) {
      const Pairs factor = repeat_pair(a + i * A_ROW);
#pragma clang loop unroll(full)
      for (int v = 0; v < VECTORS; ++v) at[i][v] = add_products(factor, column[v], at[i][v]);
    }
  }

  /// at[i][v] += sum over k < count of a[i * A_ROW + k * A_STEP] * b[k * B_STEP + v * kWidth].
  template <int A_ROW, int A_STEP, int B_STEP>
  inline void multiply(const fp32* a, const fp32* b, int count) {
    for (int k = 0; k < count; ++k) {
      add_step<A_ROW>(a, b);
      a += A_STEP;
      b += B_STEP;
    }
  }

  /// The same with a row-major `a` and `b` as pack_weight lays a panel out; `count` is even.
  template <int A_ROW, int B_STEP, class T>
  inline void multiply_packed(const T* a, const T* b, int count) {
    constexpr int kStep = sizeof(fp32) / sizeof(T);
    constexpr int kLine = 64 / sizeof(T);  // elements of a cache line; vectors may be shorter
    for (int k = 0; k < count; k += kStep) {
#pragma clang loop unroll(full)
      for (int i = 0; i < kStep * VECTORS * kWidth; i += kLine) fetch_ahead(b + i);
      add_step<A_ROW>(a, b);
      a += kStep;
      b += kStep * B_STEP;
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

  /// Row i becomes from[i * STRIDE ...].
  template <int STRIDE>
  inline void load_from(const fp32* from) {
#pragma clang loop unroll(full)
    for (int i = 0; i < ROWS; ++i) {
#pragma clang loop unroll(full)
      for (int v = 0; v < VECTORS; ++v) at[i][v] = load(from + i * STRIDE + v * kWidth);
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

/// The largest power of two below `rows`.
constexpr int shorter_tile(int rows) {
  int shorter = 1;
  while (2 * shorter < rows) shorter *= 2;
  return shorter;
}

/// Cuts rows into tiles of MAX rows and, at the end, of fewer and fewer, and calls f(first row,
/// Count of rows) for each. Few sizes, so that a kernel compiles fast: 6 or 8, then 4, 2 and 1.
template <int MAX, class F>
inline void for_tiles(Range rows, F f) {
  for (; rows.end - rows.begin >= MAX; rows.begin += MAX) f(rows.begin, Count<MAX>());
  if constexpr (MAX > 1) for_tiles<shorter_tile(MAX)>(rows, f);
}

/// A product with a weight in panels, and how it is computed.
struct PanelProduct {
  int k;        ///< columns of a
  int columns;  ///< of a panel
  int panels;
  int last_columns;  ///< of the last panel: those that are needed
  int tile_rows;     ///< most of a register tile
  int part_bytes;    ///< of a panel that stays in the L2 cache while rows pass
  int fetch_bytes;   ///< the longest panel beside which the next one has room in that cache
};

/// Fetches what is needed later into the L2 cache, a little at a time.
class GradualFetch {
 public:
  explicit GradualFetch(const void* from) : next_(static_cast<const char*>(from)), due_(next_) {}

  inline void advance(long long bytes) {
    for (due_ += bytes; next_ < due_; next_ += 64) __builtin_prefetch(next_, 0, 2);
  }

 private:
  const char* next_;
  const char* due_;
};

/// Multiplies rows by the first VECTORS vectors of a panel `w`, in register tiles. Calls
/// write(first row, rows, results [rows, P.columns]) for each. Meanwhile panel `next_w` is fetched,
/// unless it is null or too long: the first tile that needs it would wait for the L3 cache.
/// A long panel is used in parts that stay in the cache while a chunk of rows passes; sums wait in
/// between as they are, so that no bit changes.
template <PanelProduct P, int VECTORS, class T, class F>
inline void multiply_rows(const T* a, const T* w, const T* next_w, Range range, F write) {
  constexpr int kRun = 8;  // steps of k between fetches; divides K
  constexpr int kParts = (P.k * P.columns * sizeof(T) + P.part_bytes - 1) / P.part_bytes;
  constexpr int kDepth = (P.k / 8 + kParts - 1) / kParts * 8;
  constexpr int kChunk = kParts == 1 ? P.tile_rows : 32 * P.tile_rows;
  constexpr bool kFetches = P.k * P.columns * sizeof(T) <= P.fetch_bytes;
  constexpr long long kRunBytes = kRun * P.columns * static_cast<long long>(sizeof(T));
  const int rows = range.end - range.begin;
  GradualFetch fetch(next_w);
  alignas(64) fp32 sums[kChunk * P.columns];
  for (int begin = range.begin; begin < range.end; begin += kChunk) {
    const Range chunk = {begin, range.end - begin < kChunk ? range.end : begin + kChunk};
    for (int k = 0; k < P.k; k += kDepth) {
      for_tiles<P.tile_rows>(chunk, [&](int first, auto count) {
        fp32* const at = sums + (first - begin) * P.columns;
        const long long share = kFetches && next_w != nullptr ? kRunBytes * count.value / rows : 0;
        RegisterTile<count.value, VECTORS> tile = {};
        if constexpr (kParts > 1) {
          if (k > 0) tile.template load_from<P.columns>(at);
        }
        const T* row = a + static_cast<long long>(first) * P.k;
        const int end = P.k - k < kDepth ? P.k : k + kDepth;
        for (int run = k; run < end; run += kRun) {
          tile.template multiply_packed<P.k, P.columns>(row + run, w + run * P.columns, kRun);
          fetch.advance(share);
        }
        tile.template store_to<P.columns>(at);
        if (k + kDepth >= P.k) write(first, count.value, at);
      });
    }
  }
}

/// The share of `rows` of a block with this number among `shares`: whole register tiles, so that
/// only the last rows of all are left for smaller ones.
template <int TILE_ROWS>
inline Range share_of_tiles(int rows, unsigned index, unsigned shares) {
  const Range tiles = share_of((rows + TILE_ROWS - 1) / TILE_ROWS, index, shares);
  const int end = tiles.end * TILE_ROWS;
  return {tiles.begin * TILE_ROWS, end < rows ? end : rows};
}

/// What one block computes: one panel for its share of the rows. Calls
/// write(panel, first row, rows, results [rows, P.columns]) for each register tile.
template <PanelProduct P, class T, class F>
inline void multiply_panel(const T* a, const T* w, int rows, Block block, F write) {
  constexpr int kVectors = P.columns / kWidth;
  constexpr int kLastVectors = (P.last_columns + kWidth - 1) / kWidth;
  const int panel = static_cast<int>(block.x % P.panels);
  const Range range = share_of_tiles<P.tile_rows>(rows, block.x / P.panels, block.nx / P.panels);
  if (range.begin >= range.end) return;
  const auto write_tile = [=](int first, int count, const fp32* tile) {
    write(panel, first, count, tile);
  };
  const auto panel_at = [=](int i) { return w + static_cast<long long>(i) * P.k * P.columns; };
  const T* const here = panel_at(panel);
  const int next_panel = static_cast<int>(block.next_x % P.panels);
  const bool has_next = block.next_x < block.nx && next_panel != panel;
  const T* const next = has_next ? panel_at(next_panel) : nullptr;
  if constexpr (kLastVectors < kVectors) {
    if (panel + 1 == P.panels) {
      return multiply_rows<P, kLastVectors>(a, here, next, range, write_tile);
    }
  }
  multiply_rows<P, kVectors>(a, here, next, range, write_tile);
}

/// Calls write(Count of columns of the result that panel `panel` makes) for a result of N columns,
/// of which each panel but the last makes COLUMNS.
template <int N, int COLUMNS, class F>
inline void with_columns(int panel, F write) {
  constexpr int kLastPanel = (N - 1) / COLUMNS;
  if (panel < kLastPanel) {
    write(Count<COLUMNS>());
  } else {
    write(Count<N - kLastPanel * COLUMNS>());
  }
}

/// Where the bias of a panel's NR columns begins: zeros if `bias` is null.
template <int NR>
inline const fp32* panel_bias(const fp32* bias, int panel) {
  static constexpr fp32 kZeros[NR] = {};
  return bias != nullptr ? bias + panel * NR : kZeros;
}

}  // namespace
