#include "model/batch.h"

#include "tests/model/support.h"

namespace laya::model {
namespace {

using test::contains;
using test::message_of;

Config small_config() {
  Config config;
  config.vocab_size = 100;
  config.max_positions = 512;
  return config;
}

Row row_of(int32_t length, std::vector<int32_t> markers, int32_t qtype = 0) {
  Row row;
  for (int32_t i = 0; i < length; ++i) row.ids.push_back(10 + i % 80);
  row.markers = std::move(markers);
  row.qtype = qtype;
  return row;
}

std::vector<int32_t> slice(const std::vector<int32_t>& block, int64_t offset, int64_t count) {
  return {block.begin() + offset, block.begin() + offset + count};
}

using Ints = std::vector<int32_t>;

}  // namespace

TEST_CASE("a row that no model can answer is refused with field, value and what is allowed") {
  struct Case {
    Row row;
    const char* part;
  };
  Row bad_id = row_of(5, {1});
  bad_id.ids[3] = 100;
  Row negative_id = row_of(5, {1});
  negative_id.ids[0] = -1;
  Ints many(256);
  for (int32_t i = 0; i < 256; ++i) many[static_cast<size_t>(i)] = i;
  const Case cases[] = {
      {row_of(0, {}), "it has 0 ids, allowed: 1 to 512"},
      {row_of(513, {0}), "it has 513 ids"},
      {bad_id, "ids[3] is 100, allowed: 0 to 99"},
      {negative_id, "ids[0] is -1"},
      {row_of(5, {}), "it has 0 markers, allowed: 1 to 255"},
      {row_of(300, many), "it has 256 markers"},
      {row_of(5, {1, 5}), "markers[1] is 5, allowed: 0 to 4"},
      {row_of(5, {-1}), "markers[0] is -1"},
      {row_of(5, {2, 2}), "markers[1] is 2, allowed: more than markers[0], 2"},
      {row_of(5, {3, 1}), "markers[1] is 1"},
      {row_of(5, {1}, 3), "qtype is 3, allowed: 0 (choice), 1 (score), 2 (noul)"},
      {row_of(5, {1}, -1), "qtype is -1"},
  };
  for (const Case& bad : cases) {
    const std::string message = message_of(validate_row(bad.row, small_config()));
    CAPTURE(message);
    CHECK(contains(message, bad.part));
  }
  CHECK(validate_row(row_of(512, {0, 511}, 2), small_config()).has_value());
}

TEST_CASE("of several rows the wrong one is named by its number") {
  const std::vector<Row> rows = {row_of(3, {1}), row_of(3, {3})};
  CHECK(contains(message_of(validate_rows(rows, small_config())), "row 1: markers[0] is 3"));
}

TEST_CASE("a batch with too many tokens is refused") {
  const std::vector<Row> rows(2049, row_of(512, {0}));
  CHECK(contains(message_of(validate_rows(rows, small_config())), "1049088 tokens"));
  CHECK(validate_each_row(rows, small_config()).has_value());
}

TEST_CASE("an exact shape pads nothing") {
  const std::vector<Row> rows = {row_of(5, {1}), row_of(64, {1, 2, 3}), row_of(65, {0})};
  const ShapeClass shape = exact_shape(rows, {.full = 64, .sliding = 32});
  CHECK(shape == ShapeClass{3, 134, 5, 1 + 1 + 2, 1 + 2 + 3, 1 + 1 + 1});
}

TEST_CASE("token classes waste little and are few") {
  CHECK(rounded_tokens(1) == 32);
  CHECK(rounded_tokens(32) == 32);
  CHECK(rounded_tokens(33) == 64);
  CHECK(rounded_tokens(96) == 96);
  CHECK(rounded_tokens(1024) == 1024);
  CHECK(rounded_tokens(1025) == 1088);
  CHECK(rounded_tokens(32768) == 32768);
  int64_t classes = 0;
  for (int64_t tokens = 1, last = 0; tokens <= 32768; ++tokens) {
    const int64_t rounded = rounded_tokens(tokens);
    REQUIRE(rounded >= tokens);
    REQUIRE(rounded <= std::max<int64_t>(tokens + 31, tokens + tokens / 16));
    REQUIRE(rounded >= last);
    REQUIRE(rounded_tokens(rounded) == rounded);
    classes += rounded != last ? 1 : 0;
    last = rounded;
  }
  CHECK(classes <= 120);
}

TEST_CASE("every batch fits its class") {
  const TileSizes tiles{.full = 64, .sliding = 32};
  for (int32_t length = 1; length < 300; length += 7) {
    for (const size_t count : {1, 2, 5, 9}) {
      const std::vector<Row> rows(count, row_of(length, {0, length - 1}));
      const ShapeClass exact = exact_shape(rows, tiles);
      const ShapeClass shape = rounded_shape(exact, tiles);
      REQUIRE(shape.rows >= exact.rows);
      REQUIRE(shape.tokens >= exact.tokens);
      REQUIRE(shape.markers >= exact.markers);
      REQUIRE(shape.full_tiles >= exact.full_tiles);
      REQUIRE(shape.sliding_tiles >= exact.sliding_tiles);
      REQUIRE(shape.last_tiles >= exact.last_tiles);
    }
  }
}

TEST_CASE("the last layer gets the tiles with the first token or a marker, each once") {
  const TileSizes tiles{.full = 8, .sliding = 4};
  const std::vector<Row> rows = {row_of(40, {3, 7, 16, 23, 39}), row_of(33, {32}), row_of(5, {4})};
  const ShapeClass shape = exact_shape(rows, tiles);
  CHECK(shape.full_tiles == 11);
  CHECK(shape.last_tiles == 6);
  const BatchLayout layout(shape);
  Ints block(static_cast<size_t>(layout.elements), -7);
  fill_batch(rows, shape, tiles, layout, block.data());
  CHECK(slice(block, layout.last_tiles, 12) == Ints{0, 0, 0, 16, 0, 32, 1, 0, 1, 32, 2, 0});
}

TEST_CASE("batches of equal token, row and marker classes share one class") {
  const TileSizes tiles{.full = 64, .sliding = 32};
  const std::vector<Row> even = {row_of(100, {0}), row_of(100, {0}), row_of(55, {0})};
  const std::vector<Row> uneven = {row_of(1, {0}), row_of(1, {0}), row_of(240, {0}),
                                   row_of(1, {0})};
  CHECK(rounded_shape(exact_shape(even, tiles), tiles) ==
        rounded_shape(exact_shape(uneven, tiles), tiles));
}

TEST_CASE("rows are packed back to back and padding belongs to no row") {
  const std::vector<Row> rows = {row_of(3, {1, 2}, 2), row_of(5, {4}, 1)};
  const TileSizes tiles{.full = 4, .sliding = 2};
  const ShapeClass shape{
      .rows = 4, .tokens = 10, .markers = 4, .full_tiles = 5, .sliding_tiles = 7, .last_tiles = 4};
  const BatchLayout layout(shape);
  Ints block(static_cast<size_t>(layout.elements), -7);
  fill_batch(rows, shape, tiles, layout, block.data());
  CHECK(slice(block, layout.ids, 10) == Ints{10, 11, 12, 10, 11, 12, 13, 14, 0, 0});
  CHECK(slice(block, layout.positions, 10) == Ints{0, 1, 2, 0, 1, 2, 3, 4, 0, 0});
  CHECK(slice(block, layout.types, 10) == Ints{2, 2, 2, 1, 1, 1, 1, 1, 0, 0});
  CHECK(slice(block, layout.cu_seqlens, 5) == Ints{0, 3, 8, 8, 8});
  CHECK(slice(block, layout.full_tiles, 10) == Ints{0, 0, 1, 0, 1, 4, -1, 0, -1, 0});
  CHECK(slice(block, layout.sliding_tiles, 14) == Ints{0, 0, 0, 2, 1, 0, 1, 2, 1, 4, -1, 0, -1, 0});
  CHECK(slice(block, layout.last_tiles, 8) == Ints{0, 0, 1, 0, 1, 4, -1, 0});
  CHECK(slice(block, layout.gather, 8) == Ints{0, 3, 0, 0, 1, 2, 7, 0});
  CHECK(slice(block, layout.marker_offsets, 5) == Ints{0, 2, 3, 3, 3});
}

}  // namespace laya::model
