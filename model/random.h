// Random numbers by counting: number `index` of stream `stream` is a pure function, the same on
// every machine and in any order. Not for cryptography.
#pragma once

#include <cstdint>

namespace laya::model {

/// 64 well-mixed bits (the finaliser of SplitMix64).
inline uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto mix = [](uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  };
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15ULL;
  return mix(mix(mix(seed + kStep) + (stream + 1) * kStep) + (index + 1) * kStep);
}

/// offset + scale * z, where z is close to a standard normal number: the sum of four uniform ones,
/// within +-3.47. In double, where every step is exact for moderate offsets and scales, so that a
/// compiler's choice to fuse multiply and add changes nothing.
inline float random_normal(uint64_t seed, uint64_t stream, uint64_t index, float offset,
                           float scale) {
  const uint64_t bits = random_bits(seed, stream, index);
  int64_t sum = -2 * 65535;
  for (int i = 0; i < 4; ++i) sum += static_cast<int64_t>((bits >> (16 * i)) & 0xffff);
  // The sum's standard deviation is 65536 / sqrt(3), a little less for being discrete.
  constexpr float kUnit = 1.7320508F / 65536.0F;
  const float unit_scale = scale * kUnit;
  return static_cast<float>(offset + static_cast<double>(sum) * static_cast<double>(unit_scale));
}

}  // namespace laya::model
