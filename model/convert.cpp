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

bool is_too_large(float value, float limit) {
  const auto magnitude = static_cast<int32_t>(std::bit_cast<uint32_t>(value) & 0x7fffffff);
  return magnitude > std::bit_cast<int32_t>(limit) && magnitude < 0x7f800000;
}

std::optional<size_t> first_too_large(const Floats& values, size_t count, float limit) {
  int any = 0;  // without an early end: vectorised
  for (size_t i = 0; i < count; ++i) any |= is_too_large(values[i], limit);
  if (any == 0) return std::nullopt;
  const auto first = std::find_if(values.begin(), values.begin() + count,
                                  [&](float value) { return is_too_large(value, limit); });
  return static_cast<size_t>(first - values.begin());
}

}  // namespace

uint16_t float_to_fp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto magnitude = static_cast<int32_t>(bits & 0x7fffffff);
  // All cases are computed and one is chosen: 1.5 times as fast as returning early. Subnormal:
  // adding 0.5 leaves the result, rounded by the addition itself, in the low bits.
  const int32_t subnormal =
      std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000;
  const int32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  int32_t result = magnitude < 0x38800000 ? subnormal : normal;
  result = magnitude >= 0x477ff000 ? 0x7c00 : result;  // 65520 and above
  result = magnitude > 0x7f800000 ? 0x7e00 : result;
  return static_cast<uint16_t>(result | static_cast<int32_t>(bits >> 16 & 0x8000));
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
