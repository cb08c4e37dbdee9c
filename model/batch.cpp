#include "model/batch.h"

#include <algorithm>
#include <bit>
#include <string>

namespace laya::model {
namespace {

tl::unexpected<Error> bad_row(std::string what) {
  return fail(ErrorKind::kBadInput, std::move(what));
}

std::string at(const char* field, size_t index, int64_t value) {
  return std::string(field) + "[" + std::to_string(index) + "] is " + std::to_string(value);
}

Result<void> validate_ids(const Row& row, const Config& config) {
  const auto count = static_cast<int64_t>(row.ids.size());
  if (count < 1 || count > config.max_positions) {
    return bad_row("it has " + std::to_string(count) + " ids, allowed: 1 to " +
                   std::to_string(config.max_positions));
  }
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (row.ids[i] < 0 || row.ids[i] >= config.vocab_size) {
      return bad_row(at("ids", i, row.ids[i]) + ", allowed: 0 to " +
                     std::to_string(config.vocab_size - 1));
    }
  }
  return {};
}

Result<void> validate_markers(const Row& row) {
  const auto count = static_cast<int64_t>(row.markers.size());
  if (count < 1 || count > kMaxOptions) {
    return bad_row("it has " + std::to_string(count) + " markers, allowed: 1 to " +
                   std::to_string(kMaxOptions));
  }
  const auto last = static_cast<int64_t>(row.ids.size()) - 1;
  for (size_t i = 0; i < row.markers.size(); ++i) {
    if (row.markers[i] < 0 || row.markers[i] > last) {
      return bad_row(at("markers", i, row.markers[i]) + ", allowed: 0 to " + std::to_string(last) +
                     ", a position in ids");
    }
    if (i > 0 && row.markers[i] <= row.markers[i - 1]) {
      return bad_row(at("markers", i, row.markers[i]) + ", allowed: more than markers[" +
                     std::to_string(i - 1) + "], " + std::to_string(row.markers[i - 1]));
    }
  }
  return {};
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
int64_t power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

// Calls visit(first query) for each tile of a row.
template <class Visit>
void visit_tiles(const Row& row, int64_t size, const Visit& visit) {
  for (int64_t first = 0; first < std::ssize(row.ids); first += size) visit(first);
}

// The same for those with the first token or a marker.
template <class Visit>
void visit_last_tiles(const Row& row, int64_t size, const Visit& visit) {
  int64_t visited = 0;
  visit(visited);
  for (const int32_t position : row.markers) {
    const int64_t first = position / size * size;
    if (first != visited) visit(visited = first);
  }
}

// Writes the tiles of all rows, which visit_row(row, visit) visits, then padding tiles up to
// `count`.
template <class VisitRow>
void fill_tiles(std::span<const Row> rows, int64_t count, int32_t* out, const VisitRow& visit_row) {
  int32_t* const end = out + 2 * count;
  const auto write = [&](int64_t row, int64_t first) {
    *out++ = static_cast<int32_t>(row);
    *out++ = static_cast<int32_t>(first);
  };
  for (int64_t r = 0; r < std::ssize(rows); ++r) {
    visit_row(rows[static_cast<size_t>(r)], [&](int64_t first) { write(r, first); });
  }
  while (out < end) write(-1, 0);
}

void fill_tokens(std::span<const Row> rows, const ShapeClass& shape, const BatchLayout& layout,
                 int32_t* block) {
  int64_t token = 0;
  for (const Row& row : rows) {
    std::copy(row.ids.begin(), row.ids.end(), block + layout.ids + token);
    for (int32_t position = 0; position < std::ssize(row.ids); ++position, ++token) {
      block[layout.positions + token] = position;
      block[layout.types + token] = row.qtype;
    }
  }
  for (; token < shape.tokens; ++token) {
    block[layout.ids + token] = 0;
    block[layout.positions + token] = 0;
    block[layout.types + token] = 0;
  }
}

void fill_rows(std::span<const Row> rows, const ShapeClass& shape, const BatchLayout& layout,
               int32_t* block) {
  int32_t token = 0;
  int32_t marker = 0;
  for (int64_t r = 0; r < shape.rows; ++r) {
    const bool is_real = r < std::ssize(rows);
    block[layout.cu_seqlens + r] = token;
    block[layout.marker_offsets + r] = marker;
    block[layout.gather + r] = is_real ? token : 0;
    if (!is_real) continue;
    const Row& row = rows[static_cast<size_t>(r)];
    for (const int32_t position : row.markers) {
      block[layout.gather + shape.rows + marker++] = token + position;
    }
    token += static_cast<int32_t>(row.ids.size());
  }
  block[layout.cu_seqlens + shape.rows] = token;
  block[layout.marker_offsets + shape.rows] = marker;
  std::fill(block + layout.gather + shape.rows + marker, block + layout.gather + shape.gathered(),
            0);
}

}  // namespace

Result<void> validate_row(const Row& row, const Config& config) {
  LAYA_TRY(validate_ids(row, config));
  LAYA_TRY(validate_markers(row));
  if (row.qtype < 0 || row.qtype >= kQuestionTypes) {
    return bad_row("qtype is " + std::to_string(row.qtype) +
                   ", allowed: 0 (choice), 1 (score), 2 (noul)");
  }
  return {};
}

Result<void> validate_each_row(std::span<const Row> rows, const Config& config) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (auto checked = validate_row(rows[i], config); !checked) {
      Error error = std::move(checked).error();
      error.message = "row " + std::to_string(i) + ": " + error.message;
      return tl::make_unexpected(std::move(error));
    }
  }
  return {};
}

Result<void> validate_rows(std::span<const Row> rows, const Config& config) {
  LAYA_TRY(validate_each_row(rows, config));
  int64_t tokens = 0;
  for (const Row& row : rows) tokens += std::ssize(row.ids);
  if (tokens <= kMaxBatchTokens) return {};
  return fail(ErrorKind::kBadInput, "a batch of " + std::to_string(tokens) +
                                        " tokens, allowed: at most " +
                                        std::to_string(kMaxBatchTokens) +
                                        "; use predict_batch with a smaller batch size");
}

ShapeClass exact_shape(std::span<const Row> rows, TileSizes tiles) {
  ShapeClass shape;
  shape.rows = std::ssize(rows);
  for (const Row& row : rows) {
    shape.tokens += std::ssize(row.ids);
    shape.markers += std::ssize(row.markers);
    shape.full_tiles += ceil_div(std::ssize(row.ids), tiles.full);
    shape.sliding_tiles += ceil_div(std::ssize(row.ids), tiles.sliding);
    visit_last_tiles(row, tiles.full, [&](int64_t) { ++shape.last_tiles; });
  }
  return shape;
}

int64_t rounded_tokens(int64_t tokens) {
  const auto magnitude = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens)));
  const int64_t step = std::max<int64_t>(32, magnitude / 16);
  return ceil_div(tokens, step) * step;
}

ShapeClass rounded_shape(const ShapeClass& exact, TileSizes tiles) {
  ShapeClass shape;
  shape.tokens = rounded_tokens(exact.tokens);
  shape.rows = power_of_two(exact.rows);
  shape.markers = power_of_two(exact.markers);
  // Each row can have one tile that is not full.
  shape.full_tiles = shape.tokens / tiles.full + shape.rows;
  shape.sliding_tiles = shape.tokens / tiles.sliding + shape.rows;
  shape.last_tiles = std::min(shape.full_tiles, shape.gathered());
  return shape;
}

BatchLayout::BatchLayout(const ShapeClass& shape) {
  int64_t next = 0;
  const auto place = [&next](int64_t count) {
    constexpr int64_t kAlign = 64;
    const int64_t offset = next;
    next += ceil_div(count, kAlign) * kAlign;
    return offset;
  };
  ids = place(shape.tokens);
  positions = place(shape.tokens);
  types = place(shape.tokens);
  cu_seqlens = place(shape.rows + 1);
  full_tiles = place(2 * shape.full_tiles);
  sliding_tiles = place(2 * shape.sliding_tiles);
  last_tiles = place(2 * shape.last_tiles);
  gather = place(shape.gathered());
  marker_offsets = place(shape.rows + 1);
  elements = next;
}

void fill_batch(std::span<const Row> rows, const ShapeClass& shape, TileSizes tiles,
                const BatchLayout& layout, int32_t* block) {
  fill_tokens(rows, shape, layout, block);
  fill_rows(rows, shape, layout, block);
  fill_tiles(rows, shape.full_tiles, block + layout.full_tiles,
             [&](const Row& row, const auto& visit) { visit_tiles(row, tiles.full, visit); });
  fill_tiles(rows, shape.sliding_tiles, block + layout.sliding_tiles,
             [&](const Row& row, const auto& visit) { visit_tiles(row, tiles.sliding, visit); });
  fill_tiles(rows, shape.last_tiles, block + layout.last_tiles,
             [&](const Row& row, const auto& visit) { visit_last_tiles(row, tiles.full, visit); });
}

}  // namespace laya::model
