// What the tests of matrix products share: which columns of many are checked, how exactly, and
// products in tiles of every kind.
#pragma once

#include <algorithm>
#include <vector>

#include "model/tiles_sm90.h"
#include "tests/templates/harness.h"

namespace laya::test {

/// On a lesser target the small shapes are enough.
template <class AnyShape>
bool is_wanted(const Harness& on, const AnyShape& shape) {
  return on.is_thorough() || shape.n * shape.k < 10000;
}

/// The error of one fp32 chain grows with the square root of its length, up to 4096 here.
inline Tolerance product_tolerance(model::DType dtype) {
  return dtype == model::DType::kF32 ? Tolerance{1e-5, 4e-6} : tolerance_of(dtype);
}

/// All of a few columns; of many the first, the last and some in between.
inline std::vector<int64_t> some_columns(int64_t n) {
  std::vector<int64_t> columns;
  for (int64_t i = 0; i < std::min<int64_t>(n, 24); ++i) {
    columns.push_back(n <= 24 ? i : i * (n - 1) / 23);
  }
  return columns;
}

inline std::vector<float> pick_columns(const std::vector<float>& rows, int64_t n,
                                       const std::vector<int64_t>& columns) {
  std::vector<float> picked;
  for (size_t row = 0; row < rows.size(); row += n) {
    for (const int64_t column : columns) picked.push_back(rows[row + column]);
  }
  return picked;
}

inline std::vector<float> first(const std::vector<float>& values, size_t count) {
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Halves of the first `heads` heads of 64 are interleaved in each period of `values`: element i
/// and i + 32 become neighbours. An element is `size` values: a number, or a row of a matrix.
template <class Value>
std::vector<Value> interleaved_heads(const std::vector<Value>& values, size_t heads, size_t period,
                                     size_t size) {
  constexpr size_t kHead = 64;
  std::vector<Value> result = values;
  for (size_t begin = 0; begin < values.size(); begin += period) {
    for (size_t i = 0; i < heads * kHead * size; ++i) {
      const size_t element = i / size, in_head = element % kHead;
      const size_t from = element - in_head + in_head % 2 * (kHead / 2) + in_head / 2;
      result[begin + i] = values[begin + from * size + i % size];
    }
  }
  return result;
}

/// A product for Hopper in those of the tiles that it can have, whatever would be chosen.
inline model::Op with_tiles(const model::Op& op, const std::vector<model::ProductTile>& tiles) {
  const auto base = model::product_base(op.variants.front().spec);
  model::Op all;
  for (const model::ProductTile& tile : tiles) {
    if (tile.split > 1 && model::int_param(*base, "K") < 2048) continue;
    all.variants.push_back(model::product_variant(*base, tile, INT64_MAX));
  }
  return all;
}

}  // namespace laya::test
