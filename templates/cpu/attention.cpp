// Attention over packed sequences: out = softmax(q * k^T / sqrt(HEAD_DIM)) * v per head, over keys
// of the query's own sequence, with a window only those at most WINDOW positions away.
// Online softmax: keys come in steps of kKeys; a running maximum and sum per query are kept and the
// result so far is rescaled. Steps begin at multiples of kKeys of the sequence whatever the tile,
// and a key outside the window adds exact zeros, so that a query's result depends on its sequence
// alone.
//
//! entry attention
//! param T         word  fp32 bf16           element type of qkv and out
//! param HEADS     int   1..1024
//! param HEAD_DIM  int   16..256 step 16     of one head
//! param WINDOW    int   0..1048576          0: all keys
//! param BQ        int   16..128 step 16     queries of a tile
//! arg qkv         ptr   [rows, 3, HEADS, HEAD_DIM] T: q, k, v
//! arg out         ptr   [rows, HEADS, HEAD_DIM] T
//! arg cu_seqlens  ptr   [S + 1] i32: sequence s has the rows cu_seqlens[s]..cu_seqlens[s + 1]
//! arg tiles       ptr   [n, 2] i32: sequence and first query; a sequence of -1: nothing to do
//! arg n           i32   tiles; may be 0
//
// Launch: n * HEADS blocks, or more, a multiple of HEADS; tiles of one head follow each other, so
// that keys stay in the cache. Queries lie across the lanes of a vector, so that no step needs a
// sum or a maximum over lanes.
#include "register_tile.h"
#include "vector_math.h"

namespace {

constexpr int kKeys = 64;  ///< keys of a step
constexpr int kStride = 3 * HEADS * HEAD_DIM;
/// Distance of the rows of keys and values that products read.
constexpr int kReadStride = T_BYTES == sizeof(fp32) ? kStride : HEAD_DIM;
constexpr int kQueryVectors = BQ % (2 * kWidth) == 0 ? 2 : 1;         ///< of a tile of scores
constexpr int kColumnVectors = HEAD_DIM % (2 * kWidth) == 0 ? 2 : 1;  ///< of a tile of results
/// Keys and queries of a register tile: few sizes, so that the kernel compiles fast.
constexpr int kKeyRows = kAccumulators / kQueryVectors < 8 ? 4 : 8;
constexpr int kQueryRows = kAccumulators / kColumnVectors < 8 ? 4 : 8;

/// The `n` rows of one head from `from` on, as products read them: as they are, or as fp32 in
/// `copy`.
inline const fp32* readable(const fp32* from, int, fp32*) {
  return from;
}
inline const fp32* readable(const bf16* from, int n, fp32* copy) {
  for (int row = 0; row < n; ++row) {
    const bf16* elements = from + static_cast<long long>(row) * kStride;
    for_vectors<HEAD_DIM>([&](int d, auto lanes) {
      store(copy + row * HEAD_DIM + d, load(elements + d, lanes), lanes);
    });
  }
  return copy;
}

/// One tile of queries of one head while it walks over the keys.
struct Tile {
  const T* keys;  ///< of the sequence; values follow at a fixed distance
  const T* values;
  int first, count;  ///< queries, as positions in the sequence

  alignas(64) fp32 query[HEAD_DIM * BQ];   ///< transposed, times log2(e) / sqrt(HEAD_DIM)
  alignas(64) fp32 score[kKeys * BQ];      ///< by key, then query; later the weights
  alignas(64) fp32 result[BQ * HEAD_DIM];  ///< by query, then column
  alignas(64) fp32 top[BQ];                ///< largest score so far
  alignas(64) fp32 total[BQ];              ///< sum of weights so far
  alignas(64) fp32 rescale[BQ];            ///< what the step before must be multiplied with
  alignas(64) fp32 copy[T_BYTES == sizeof(fp32) ? 1 : kKeys * HEAD_DIM];  ///< of keys or values

  void begin(const T* queries);
  void step(int key, int n);
  void finish(T* out) const;

 private:
  void compute_scores(const fp32* rows, int n);
  template <int ROWS>
  void compute_scores(const fp32* rows, int row, int i);
  void compute_weights(int key, int n);
  void add_values(const fp32* rows, int n);
};

/// Lanes past the last query work on zeros and are never written.
void Tile::begin(const T* queries) {
  constexpr fp32 kLog2E = 1.442695041f;
  const fp32 scale = kLog2E / __builtin_elementwise_sqrt(static_cast<fp32>(HEAD_DIM));
  for (int i = 0; i < BQ; ++i) {
    for (int d = 0; d < HEAD_DIM; ++d) {
      query[d * BQ + i] =
          i < count ? to_fp32(queries[static_cast<long long>(i) * kStride + d]) * scale : 0;
    }
    // Finite, so that a step without any visible key leaves no NaN.
    top[i] = -3e38f;
    total[i] = 0;
  }
  __builtin_memset(result, 0, sizeof(result));
}

void Tile::step(int key, int n) {
  const long long offset = static_cast<long long>(key) * kStride;
  compute_scores(readable(keys + offset, n, copy), n);
  compute_weights(key, n);
  add_values(readable(values + offset, n, copy), n);
}

void Tile::compute_scores(const fp32* rows, int n) {
  const int whole = n / kKeyRows * kKeyRows;
  for (int i = 0; i < BQ; i += kQueryVectors * kWidth) {
    for (int row = 0; row < whole; row += kKeyRows) compute_scores<kKeyRows>(rows, row, i);
    for (int row = whole; row < n; ++row) compute_scores<1>(rows, row, i);
  }
}

template <int ROWS>
void Tile::compute_scores(const fp32* rows, int row, int i) {
  RegisterTile<ROWS, kQueryVectors> tile = {};
  const fp32* from = rows + static_cast<long long>(row) * kReadStride;
  tile.template multiply<kReadStride, 1, BQ>(from, query + i, HEAD_DIM);
  tile.template store_to<BQ>(score + row * BQ + i);
}

/// Score of `key` for the queries from position `i` on; -inf where the window hides it.
inline Vec visible(Vec score, int i, int key) {
  if constexpr (WINDOW == 0) return score;
  VecInt distance;
  for (int lane = 0; lane < kWidth; ++lane) distance[lane] = i + lane - key;
  return select(__builtin_elementwise_abs(distance) <= WINDOW, score, -__builtin_inff());
}

void Tile::compute_weights(int key, int n) {
  for (int i = 0; i < BQ; i += kWidth) {
    const Vec old_top = load(top + i);
    Vec new_top = old_top;
    for (int j = 0; j < n; ++j) {
      const Vec s = visible(load(score + j * BQ + i), first + i, key + j);
      new_top = max(s, new_top);
      store(score + j * BQ + i, s);
    }
    const Vec factor = exp2_of_nonpositive(old_top - new_top);
    Vec sums = load(total + i) * factor;
    for (int j = 0; j < n; ++j) {
      const Vec weight = exp2_of_nonpositive(load(score + j * BQ + i) - new_top);
      store(score + j * BQ + i, weight);
      sums += weight;
    }
    store(top + i, new_top);
    store(total + i, sums);
    store(rescale + i, factor);
  }
}

/// The last tile of queries may work on lanes past the end.
void Tile::add_values(const fp32* rows, int n) {
  for (int d = 0; d < HEAD_DIM; d += kColumnVectors * kWidth) {
    for (int row = 0; row < count; row += kQueryRows) {
      RegisterTile<kQueryRows, kColumnVectors> tile;
      fp32* sums = result + row * HEAD_DIM + d;
      tile.template load_scaled<HEAD_DIM>(sums, rescale + row);
      tile.template multiply<1, BQ, kReadStride>(score + row, rows + d, n);
      tile.template store_to<HEAD_DIM>(sums);
    }
  }
}

void Tile::finish(T* out) const {
  for (int i = 0; i < count; ++i) {
    const fp32 factor = 1.0f / total[i];
    T* to = out + static_cast<long long>(i) * HEADS * HEAD_DIM;
    for_vectors<HEAD_DIM>(
        [&](int d, auto n) { store(to + d, load(result + i * HEAD_DIM + d, n) * factor, n); });
  }
}

}  // namespace

extern "C" void attention(const T* qkv, T* out, const int* cu_seqlens, const int* tiles, int n,
                          Block block) {
  const unsigned count = block.nx / HEADS;
  const int index = static_cast<int>(block.x % count), head = static_cast<int>(block.x / count);
  if (index >= n) return;
  const int* place = tiles + 2 * static_cast<long long>(index);
  if (place[0] < 0) return;
  const int first = place[1];
  const long long begin = cu_seqlens[place[0]];
  const int length = static_cast<int>(cu_seqlens[place[0] + 1] - begin);
  const T* q = qkv + begin * kStride + head * HEAD_DIM;

  Tile tile;
  tile.keys = q + HEADS * HEAD_DIM;
  tile.values = q + 2 * HEADS * HEAD_DIM;
  tile.first = first;
  tile.count = length - first < BQ ? length - first : BQ;
  tile.begin(q + static_cast<long long>(first) * kStride);
  const int last = first + tile.count - 1;
  const int from = WINDOW > 0 && first > WINDOW ? first - WINDOW : 0;
  const int to = WINDOW > 0 && last + WINDOW < length ? last + WINDOW + 1 : length;
  for (int key = from; key < to;) {
    const int step_end = (key / kKeys + 1) * kKeys;
    const int end = step_end < to ? step_end : to;
    tile.step(key, end - key);
    key = end;
  }
  tile.finish(out + (begin + first) * HEADS * HEAD_DIM + head * HEAD_DIM);
}
