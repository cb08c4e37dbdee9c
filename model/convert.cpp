#include "model/convert.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace laya::model {
namespace {

// Small enough for the first-level cache, large enough to keep the loops vectorised.
constexpr size_t kBlock = 1024;

using Floats = std::array<float, kBlock>;
using Halves = std::array<uint16_t, kBlock>;

void load_block(const std::byte* source, DType from, Floats& out, size_t count) {
  if (from == DType::kF32) {
    std::memcpy(out.data(), source, count * sizeof(float));
    return;
  }
  Halves halves;
  std::memcpy(halves.data(), source, count * sizeof(uint16_t));
  if (from == DType::kF16) {
    for (size_t i = 0; i < count; ++i) out[i] = fp16_to_float(halves[i]);
  } else {
    for (size_t i = 0; i < count; ++i) out[i] = bf16_to_float(halves[i]);
  }
}

void store_block(const Floats& in, std::byte* target, DType to, size_t count) {
  if (to == DType::kF32) {
    std::memcpy(target, in.data(), count * sizeof(float));
    return;
  }
  Halves halves;
  if (to == DType::kF16) {
    for (size_t i = 0; i < count; ++i) halves[i] = float_to_fp16(in[i]);
  } else {
    for (size_t i = 0; i < count; ++i) halves[i] = float_to_bf16(in[i]);
  }
  std::memcpy(target, halves.data(), count * sizeof(uint16_t));
}

// The largest float whose conversion to `to` is finite.
float largest(DType to) {
  switch (to) {
    case DType::kF16: return std::nextafter(65520.0F, 0.0F);
    case DType::kBF16: return std::bit_cast<float>(0x7f7f7fffU);
    case DType::kF32: break;
  }
  return std::bit_cast<float>(0x7f7fffffU);
}

std::optional<size_t> first_too_large(const Floats& values, size_t count, float limit) {
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i]) && std::fabs(values[i]) > limit) return i;
  }
  return std::nullopt;
}

}  // namespace

uint16_t float_to_fp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and above
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 leaves the result, rounded by the addition itself, in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

std::optional<size_t> convert(const std::byte* source, DType from, std::byte* target, DType to,
                              size_t count) {
  if (from == to) {
    std::memcpy(target, source, count * static_cast<size_t>(size_of(to)));
    return std::nullopt;
  }
  const bool can_overflow = to == DType::kF16 || (to == DType::kBF16 && from == DType::kF32);
  Floats values;
  for (size_t done = 0; done < count; done += kBlock) {
    const size_t n = std::min(kBlock, count - done);
    load_block(source + done * static_cast<size_t>(size_of(from)), from, values, n);
    if (can_overflow) {
      if (const auto at = first_too_large(values, n, largest(to))) return done + *at;
    }
    store_block(values, target + done * static_cast<size_t>(size_of(to)), to, n);
  }
  return std::nullopt;
}

}  // namespace laya::model
