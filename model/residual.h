// An element of a GPU's residual stream in two parts of 16 bits, as templates/cuda/residual.cuh
// keeps it and says why, and the moments of its rows; for who fills or reads them on the host.
#pragma once

#include <bit>
#include <cstdint>

#include "model/convert.h"

namespace laya::model {

struct SplitFloat {
  uint16_t upper, lower;
};

/// What 1 in the upper and in the lower part of an fp16 stands for: values up to a million fit.
inline constexpr float kFp16ResidualUnit = 16;
inline constexpr float kFp16RestUnit = kFp16ResidualUnit / 2048;

/// `dtype`: kBF16, which is exact, or kF16, 22 bits. Two parts of 0 are 0 in fp16, and a NaN in
/// bf16.
inline SplitFloat split_residual(float value, DType dtype) {
  if (dtype == DType::kBF16) {
    const uint32_t bits = std::bit_cast<uint32_t>(value) + 0x8000;
    return {static_cast<uint16_t>(bits >> 16), static_cast<uint16_t>(bits)};
  }
  const uint16_t upper = float_to_fp16(value / kFp16ResidualUnit);
  const float rest = value - fp16_to_float(upper) * kFp16ResidualUnit;
  return {upper, float_to_fp16(rest / kFp16RestUnit)};
}

inline float join_residual(SplitFloat parts, DType dtype) {
  if (dtype == DType::kBF16) {
    const uint32_t bits = static_cast<uint32_t>(parts.upper) << 16 | parts.lower;
    return std::bit_cast<float>(bits - 0x8000);
  }
  return fp16_to_float(parts.upper) * kFp16ResidualUnit +
         fp16_to_float(parts.lower) * kFp16RestUnit;
}

/// Floats in an array of moments of `rows` rows, [hidden / 32, R8, 2] (templates/cuda/moments.cuh).
inline int64_t moment_floats(int64_t rows, int64_t hidden) {
  return hidden / 32 * ((rows + 7) / 8 * 8) * 2;
}

}  // namespace laya::model
