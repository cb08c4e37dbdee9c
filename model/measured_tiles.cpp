#include "model/measured_tiles.h"

#include <algorithm>
#include <limits>

namespace laya::model {
namespace {

constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();

// From measurements on an H200: what tools/choose_tiles proposes, but for rows marked "model",
// which are there because the model itself gained by them, and "hand", where what is proposed for
// more row counts at once takes several percent longer at one of these, or did so in another run.
// The fields of a tile are those of ProductTile: rows, columns, cluster, consumers, shared, split,
// x_ring.
constexpr MeasuredTile kTable[] = {
    // clang-format off
    {"gemm", 2304, 768, 512, {64, 96, 1, 2, false, 1}},
    {"gemm", 2304, 768, 2048, {64, 192, 1, 2, false, 1}},  // model
    {"gemm", 2304, 768, kAnyRows, {128, 128, 1, 2, false, 1}},  // hand
    {"gemm", 3072, 1024, 256, {64, 96, 1, 2, false, 1}},
    {"gemm", 3072, 1024, 2048, {64, 192, 1, 2, false, 1}},  // hand
    {"gemm", 3072, 1024, kAnyRows, {128, 128, 1, 2, false, 1}},  // hand
    {"gemm", 3072, 768, 128, {64, 64, 1, 1, false, 1}},
    {"gemm", 3072, 768, 256, {64, 128, 1, 2, false, 1}},  // hand
    {"gemm", 3072, 768, 2048, {64, 192, 1, 2, false, 1}},  // hand
    {"gemm", 3072, 768, kAnyRows, {128, 128, 1, 2, false, 1}},  // hand
    {"gemm", 4096, 1024, 512, {64, 128, 1, 2, false, 1}},
    {"gemm", 4096, 1024, kAnyRows, {128, 128, 1, 2, false, 1}},
    {"gemm_geglu", 1152, 768, 128, {64, 64, 1, 1, false, 1}},
    {"gemm_geglu", 1152, 768, 512, {64, 96, 1, 2, false, 1}},
    {"gemm_geglu", 1152, 768, 1024, {128, 160, 1, 2, true, 1}},  // hand
    {"gemm_geglu", 1152, 768, 4096, {64, 192, 1, 2, false, 1}},
    {"gemm_geglu", 1152, 768, kAnyRows, {128, 128, 1, 2, false, 1}},
    {"gemm_geglu", 2624, 1024, 128, {64, 128, 1, 2, false, 1}},
    {"gemm_geglu", 2624, 1024, 256, {128, 96, 1, 2, true, 1}},
    {"gemm_geglu", 2624, 1024, 1024, {128, 160, 1, 2, true, 1}},
    {"gemm_geglu", 2624, 1024, kAnyRows, {128, 128, 1, 2, false, 1}},
    {"gemm_residual", 768, 768, 256, {64, 32, 1, 1, false, 1}},
    {"gemm_residual", 768, 768, 2048, {64, 96, 1, 2, false, 1}},
    {"gemm_residual", 768, 768, 4096, {64, 192, 1, 2, false, 1, true}},  // hand
    {"gemm_residual", 768, 768, kAnyRows, {128, 128, 1, 2, false, 1, true}},
    {"gemm_residual", 768, 1152, 256, {64, 32, 1, 1, false, 1}},
    {"gemm_residual", 768, 1152, 1024, {64, 96, 1, 2, false, 1}},
    {"gemm_residual", 768, 1152, 2048, {128, 96, 1, 2, false, 1}},  // hand
    {"gemm_residual", 768, 1152, 4096, {128, 192, 1, 2, true, 1}},  // model
    {"gemm_residual", 768, 1152, kAnyRows, {128, 128, 1, 2, false, 1, true}},
    {"gemm_residual", 768, 3072, 256, {64, 128, 1, 1, true, 4}},  // hand
    {"gemm_residual", 768, 3072, 1024, {64, 96, 1, 2, false, 1}},
    {"gemm_residual", 768, 3072, 2048, {128, 96, 1, 2, true, 1}},  // hand
    {"gemm_residual", 768, 3072, kAnyRows, {128, 192, 1, 2, true, 1}},  // hand
    {"gemm_residual", 1024, 1024, 128, {64, 32, 1, 1, false, 1}},
    {"gemm_residual", 1024, 1024, 512, {64, 64, 1, 1, false, 1}},
    {"gemm_residual", 1024, 1024, 1024, {128, 64, 1, 2, false, 1}},
    {"gemm_residual", 1024, 1024, 2048, {128, 128, 1, 2, false, 1}},  // hand
    {"gemm_residual", 1024, 1024, kAnyRows, {128, 128, 1, 2, false, 1, true}},  // hand
    {"gemm_residual", 1024, 2624, 64, {64, 128, 1, 1, true, 4}},
    {"gemm_residual", 1024, 2624, 256, {64, 64, 1, 1, true, 2}},
    {"gemm_residual", 1024, 2624, 512, {64, 64, 1, 1, false, 1}},
    {"gemm_residual", 1024, 2624, 1024, {128, 64, 1, 2, false, 1}},
    {"gemm_residual", 1024, 2624, kAnyRows, {128, 128, 2, 2, true, 1}},  // hand
    {"gemm_residual", 1024, 4096, 256, {64, 64, 1, 1, true, 2}},
    {"gemm_residual", 1024, 4096, 1024, {64, 128, 1, 2, false, 1}},
    {"gemm_residual", 1024, 4096, kAnyRows, {128, 128, 2, 2, true, 1}},
    {"gemm_rope", 2304, 768, 128, {64, 64, 1, 1, false, 1}},
    {"gemm_rope", 2304, 768, 256, {64, 96, 1, 2, false, 1}},
    {"gemm_rope", 2304, 768, 512, {64, 192, 1, 2, false, 1}},
    {"gemm_rope", 2304, 768, 1024, {128, 160, 1, 2, true, 1}},  // model
    {"gemm_rope", 2304, 768, 4096, {64, 192, 1, 2, false, 1}},
    {"gemm_rope", 2304, 768, kAnyRows, {128, 128, 2, 2, false, 1}},
    {"gemm_rope", 3072, 1024, 64, {64, 64, 1, 1, false, 1}},
    {"gemm_rope", 3072, 1024, 256, {64, 96, 1, 2, false, 1}},
    {"gemm_rope", 3072, 1024, 512, {64, 192, 1, 2, false, 1}},  // hand
    {"gemm_rope", 3072, 1024, 2048, {128, 192, 1, 2, true, 1}},
    {"gemm_rope", 3072, 1024, kAnyRows, {128, 128, 2, 2, false, 1}},
    // clang-format on
};

}  // namespace

std::span<const MeasuredTile> measured_tiles(std::string_view kernel, int64_t n, int64_t k) {
  const auto is_wanted = [&](const MeasuredTile& row) {
    return row.kernel == kernel && row.n == n && row.k == k;
  };
  const auto* const begin = std::find_if(std::begin(kTable), std::end(kTable), is_wanted);
  return {begin, std::find_if_not(begin, std::end(kTable), is_wanted)};
}

}  // namespace laya::model
