#include <array>
#include <cmath>
#include <numeric>

#include "tests/templates/harness.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::DType;

struct Shape {
  int heads, head_dim, window;

  size_t row() const { return static_cast<size_t>(3 * heads * head_dim); }
  size_t result_row() const { return static_cast<size_t>(heads * head_dim); }
};

/// Weights of the values are rounded to the compute dtype too, in 16 bit.
Tolerance attention_tolerance(DType dtype) {
  const Tolerance once = tolerance_of(dtype);
  if (dtype == DType::kF32) return once;
  return {once.relative, 2 * once.relative};
}

class Attention {
 public:
  Attention(Harness& on, DType dtype, const Shape& shape)
      : on_(on),
        dtype_(dtype),
        shape_(shape),
        op_(model::attention_op(on.target(), dtype, shape.heads, shape.head_dim, shape.window)) {}

  const model::Op& op() const { return op_; }

  /// Result of one batch by one variant. An empty tile comes first, in the middle and last.
  std::vector<float> run(const model::Variant& variant, const std::vector<float>& qkv,
                         const std::vector<int>& lengths) {
    std::vector<int> starts = {0}, tiles = {-1, 0};
    const int queries = static_cast<int>(variant.rule.rows_per_block);
    for (size_t sequence = 0; sequence < lengths.size(); ++sequence) {
      starts.push_back(starts.back() + lengths[sequence]);
      for (int first = 0; first < lengths[sequence]; first += queries) {
        tiles.insert(tiles.end(), {static_cast<int>(sequence), first});
      }
      if (sequence == 0) tiles.insert(tiles.end(), {-1, 7});
    }
    tiles.insert(tiles.end(), {-1, -1});
    const int count = static_cast<int>(tiles.size() / 2);
    const DeviceArray device_qkv = on_.floats(qkv, dtype_), device_starts = on_.ints(starts);
    const DeviceArray device_tiles = on_.ints(tiles);
    const DeviceArray out = on_.output(qkv.size() / 3, dtype_);
    on_.run(variant, int64_t{count} * queries, device_qkv, out, device_starts, device_tiles, count);
    check_same_bits(on_.read(device_qkv), qkv);
    return on_.read(out);
  }

  std::vector<double> expected(const std::vector<float>& qkv,
                               const std::vector<int>& lengths) const {
    return reference::attention(to_double(qkv), lengths, shape_.heads, shape_.head_dim,
                                shape_.window);
  }

  /// All variants against the reference, each sequence alone against the batch.
  void check(const std::vector<float>& qkv, const std::vector<int>& lengths) {
    const std::vector<float> whole = run(op_.variants.front(), qkv, lengths);
    check_close(whole, expected(qkv, lengths), attention_tolerance(dtype_));
    for (const model::Variant& variant : op_.variants) {
      check_same_bits(run(variant, qkv, lengths), whole);
    }
    size_t begin = 0;
    for (const int length : lengths) {
      const size_t rows = static_cast<size_t>(length);
      const auto from = qkv.begin() + static_cast<std::ptrdiff_t>(begin * shape_.row());
      const std::vector<float> alone =
          run(op_.choose(length), {from, from + static_cast<std::ptrdiff_t>(rows * shape_.row())},
              {length});
      check_same_bits(alone, std::span(whole).subspan(begin * shape_.result_row(), alone.size()));
      begin += rows;
    }
  }

 private:
  Harness& on_;
  DType dtype_;
  Shape shape_;
  model::Op op_;
};

size_t total(const std::vector<int>& lengths) {
  return static_cast<size_t>(std::accumulate(lengths.begin(), lengths.end(), 0));
}

/// One sequence of one head: `q`, `k`, `v` give the first component of each row, the others are 0.
template <class F>
std::vector<float> one_head(int length, int head_dim, F first_components) {
  std::vector<float> qkv(static_cast<size_t>(3 * length * head_dim), 0.0f);
  for (int row = 0; row < length; ++row) {
    const auto components = first_components(row);
    for (size_t part = 0; part < 3; ++part) {
      qkv[(static_cast<size_t>(3 * row) + part) * head_dim] = components[part];
    }
  }
  return qkv;
}

constexpr int kWindow = 64;

}  // namespace

DEVICE_TEST("attention: lengths from 1 to 1024 in one batch, full and with a window") {
  std::vector<int> lengths = {1, 2, 63, 64, 65, 66, 127, 129, 130, 200, 513, 1024, 1};
  if (!on.is_thorough()) lengths.resize(9);
  for (const DType dtype : on.dtypes()) {
    for (const Shape& shape : {Shape{1, 64, 0}, {2, 64, kWindow}}) {
      CAPTURE(model::to_string(dtype));
      CAPTURE(shape.window);
      Random random(21);
      Attention(on, dtype, shape)
          .check(random.values(total(lengths) * shape.row(), -2, 2, dtype), lengths);
    }
  }
}

DEVICE_TEST("attention: heads and windows of many sizes") {
  const std::vector<int> lengths = {5, 33, 70, 40};
  std::vector<Shape> shapes = {{12, 64, 0}, {16, 64, kWindow}, {3, 32, 0}, {1, 32, 5}, {2, 64, 1}};
  // The kernel of the GPU has fewer head sizes.
  if (on.is_cpu()) shapes.insert(shapes.end(), {{2, 16, 0}, {3, 48, 7}, {1, 128, 0}, {1, 80, 3}});
  for (const DType dtype : on.dtypes()) {
    for (const Shape& shape : shapes) {
      CAPTURE(model::to_string(dtype));
      CAPTURE(shape.head_dim);
      Random random(22);
      Attention(on, dtype, shape)
          .check(random.values(total(lengths) * shape.row(), -2, 2, dtype), lengths);
    }
  }
}

DEVICE_TEST("attention: a key 64 positions away counts, one 65 away does not") {
  constexpr int kLength = 200, kHeadDim = 64;
  for (const DType dtype : on.dtypes()) {
    Attention attention(on, dtype, {1, kHeadDim, kWindow});
    // Among them the outermost keys of the first and the last query of a tile of 32, 64 or 128.
    for (const int loud : {0, 31, 63, 64, 100, 127, 128, 159, 191, 199}) {
      CAPTURE(model::to_string(dtype));
      CAPTURE(loud);
      // The loud key wins over all others wherever it is seen; its value is 1, all others are 0.
      const std::vector<float> qkv = one_head(kLength, kHeadDim, [&](int row) {
        return std::array<float, 3>{8, row == loud ? 1000.0f : 0.0f, row == loud ? 1.0f : 0.0f};
      });
      for (const model::Variant& variant : attention.op().variants) {
        const std::vector<float> out = attention.run(variant, qkv, {kLength});
        for (int row = 0; row < kLength; ++row) {
          CAPTURE(row);
          const bool seen = std::abs(row - loud) <= kWindow;
          CHECK(out[static_cast<size_t>(row * kHeadDim)] == (seen ? 1.0f : 0.0f));
        }
      }
    }
  }
}

DEVICE_TEST("attention: scores of a thousand do not overflow, equal scores give the mean") {
  constexpr int kLength = 150, kHeadDim = 64;
  for (const DType dtype : on.dtypes()) {
    for (const int window : {0, kWindow}) {
      CAPTURE(model::to_string(dtype));
      CAPTURE(window);
      Attention attention(on, dtype, {1, kHeadDim, window});
      // Scores of +-1000, exact in every dtype.
      attention.check(one_head(kLength, kHeadDim,
                               [&](int row) {
                                 return std::array<float, 3>{
                                     row % 2 == 0 ? 8.0f : -8.0f, row % 3 == 0 ? 1000.0f : -1000.0f,
                                     rounded(0.01f * static_cast<float>(row), dtype)};
                               }),
                      {kLength});
      // Equal scores, also far from zero.
      for (const float key : {0.0f, 1000.0f, -1000.0f}) {
        attention.check(one_head(kLength, kHeadDim,
                                 [&](int row) {
                                   return std::array<float, 3>{
                                       8.0f, key, rounded(0.01f * static_cast<float>(row), dtype)};
                                 }),
                        {kLength});
      }
    }
  }
}

DEVICE_TEST("attention: rows of no tile are left alone, and no tiles are no work") {
  const Shape shape{2, 64, 0};
  for (const DType dtype : on.dtypes()) {
    const model::Op op =
        model::attention_op(on.target(), dtype, shape.heads, shape.head_dim, shape.window);
    Random random(23);
    const DeviceArray qkv = on.floats(random.values(10 * shape.row(), -2, 2, dtype), dtype);
    const DeviceArray starts = on.ints({0, 10}), tiles = on.ints({-1, 0, -1, 0});
    const DeviceArray out = on.output(10 * shape.result_row(), dtype);
    const std::vector<float> untouched = on.read(out);
    on.run(op, 2 * op.variants.front().rule.rows_per_block, qkv, out, starts, tiles, 2);
    on.run(op, 0, qkv, out, starts, tiles, 0);
    check_same_bits(on.read(out), untouched);
  }
}

}  // namespace laya::test
