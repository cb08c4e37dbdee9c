// Conversion between the element types, exact or rounded to nearest even. Portable code: the same
// bits on every machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "model/dtype.h"

namespace laya::model {

inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline float fp16_to_float(uint16_t bits) {
  // Shifts exponent and mantissa into place and corrects the exponent's bias by a multiplication,
  // which also makes subnormals right. No branch, so that loops over it are vectorised.
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
  const uint32_t infinite = magnitude >= 0x0f800000 ? 0x7f800000 : 0;  // infinity and NaN
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | infinite | sign);
}

/// NaN stays NaN.
inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1), quiet_nan = bits | 0x400000;
  const bool is_nan = static_cast<int32_t>(bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>((is_nan ? quiet_nan : rounded) >> 16);
}

/// Values from 65520 on become infinite; NaN stays NaN.
uint16_t float_to_fp16(float value);

/// Converts `count` elements; `source` and `target` may have any alignment and must not overlap.
/// Returns the index of the first finite element that has no finite value in `to`, if there is one;
/// the elements from there on are unspecified.
std::optional<size_t> convert(const std::byte* source, DType from, std::byte* target, DType to,
                              size_t count);

}  // namespace laya::model
