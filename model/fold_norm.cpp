#include "model/fold_norm.h"

#include <array>
#include <cstddef>

namespace laya::model {
namespace {

/// Sums of every 16th value: a loop that the compiler vectorises.
float sum_of(std::span<const float> values) {
  std::array<float, 16> sums{};
  const size_t whole = values.size() / sums.size() * sums.size();
  for (size_t i = 0; i < whole; i += sums.size()) {
    for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += values[i + lane];
  }
  for (size_t i = whole; i < values.size(); ++i) sums[0] += values[i];
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

}  // namespace

void fold_norm_weight(std::span<float> row, std::span<const float> norm_weight) {
  for (size_t i = 0; i < row.size(); ++i) row[i] *= norm_weight[i];
  const float mean = sum_of(row) / static_cast<float>(row.size());
  for (float& value : row) value -= mean;
}

float folded_norm_bias(std::span<const float> row, std::span<const float> norm_bias) {
  double sum = 0;
  for (size_t i = 0; i < row.size(); ++i) sum += double{row[i]} * double{norm_bias[i]};
  return static_cast<float>(sum);
}

}  // namespace laya::model
