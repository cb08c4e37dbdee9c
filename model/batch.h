// From rows of tokens to the index arrays that the kernels read. Rows are packed back to back,
// never padded to each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/result.h"
#include "model/config.h"

namespace laya::model {

/// One question: the tokens of its prompt and where its options are.
struct Row {
  std::vector<int32_t> ids;  ///< at least one, at most Config::max_positions; each in [0, vocab)
  std::vector<int32_t> markers;  ///< positions in `ids` of the options, ascending; 1 to kMaxOptions
  int32_t qtype = 0;             ///< 0 choice, 1 score, 2 noul
};

inline constexpr int64_t kMaxOptions = 255;
/// Tokens of all rows of one batch together.
inline constexpr int64_t kMaxBatchTokens = int64_t{1} << 20;

/// kBadInput names the field, its value and what is allowed.
Result<void> validate_row(const Row& row, const Config& config);
/// Every row on its own. Messages begin with the row's number: "row 3: ".
Result<void> validate_each_row(std::span<const Row> rows, const Config& config);
/// Every row, and that all of them together are not too large for one batch.
Result<void> validate_rows(std::span<const Row> rows, const Config& config);

/// Run-time sizes of one forward pass. Kernels are launched over these, so that one recorded graph
/// serves every batch that fits.
struct ShapeClass {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t markers = 0;
  int64_t full_tiles = 0;     ///< attention tiles of full layers
  int64_t sliding_tiles = 0;  ///< attention tiles of sliding layers
  int64_t last_tiles = 0;     ///< those of full_tiles that the last layer needs
  int64_t gathered() const { return rows + markers; }
  bool operator==(const ShapeClass&) const = default;
};

/// Queries per attention tile, as the kernels chosen for a token count want it.
struct TileSizes {
  int64_t full = 1;
  int64_t sliding = 1;
};

/// Exactly what `rows` need.
ShapeClass exact_shape(std::span<const Row> rows, TileSizes tiles);

/// Token count of the class that `tokens` falls into: steps of 32, from 1024 on of 1/16 to 1/32.
int64_t rounded_tokens(int64_t tokens);
/// The class of a shape whose token count is rounded already: rows and markers go up to a power of
/// two, tiles to what any batch of so many rows, tokens and markers can need.
ShapeClass rounded_shape(const ShapeClass& exact, TileSizes tiles);

/// The index arrays of one batch, in one block of 32-bit integers, so that one copy moves them all.
/// What a class has beyond the batch is padding: tokens of id 0 that belong to no sequence, tiles
/// of sequence -1, rows without options; computed where a kernel does not know better, never read.
struct BatchLayout {
  explicit BatchLayout(const ShapeClass& shape);

  // Offsets in elements; each array begins at a multiple of 64.
  int64_t ids, positions, types;      ///< [tokens]
  int64_t cu_seqlens;                 ///< [rows + 1] first token of each sequence; padding: the end
  int64_t full_tiles, sliding_tiles;  ///< [tiles, 2] (sequence, first query)
  int64_t last_tiles;                 ///< [tiles, 2], those of full_tiles with a row of `gather`
  int64_t gather;                     ///< [rows + markers] first tokens of all rows, then markers
  int64_t marker_offsets;             ///< [rows + 1] first option of each row
  int64_t elements;                   ///< of the whole block
};

/// Fills `block` (layout.elements integers). Precondition: validated rows that fit `shape`.
void fill_batch(std::span<const Row> rows, const ShapeClass& shape, TileSizes tiles,
                const BatchLayout& layout, int32_t* block);

}  // namespace laya::model
