// The residual stream x of the GPUs: [rows, D], all of it fp32, or in two parts of 16 bits, of
// which a product reads the upper one as it is. That saves the copy that a product would need
// beside x in fp32, a fifth of what the products that add to x move.
//
// bf16: the two halves of the bits of x + half a unit of the upper one, which so is x rounded to
// nearest: nothing is lost (a NaN may become -0 there: products get it from the moments). Two parts
// of 0 are a NaN. fp16: x times kResidualUnit rounded, so that values up to a million fit, and the
// rest of that times kRestUnit, 22 bits together.
#pragma once

#include "types.cuh"

/// What a product reads of an element of x is the element times this.
template <class Elem>
constexpr float kResidualUnit = 1;
template <>
constexpr float kResidualUnit<fp16> = 1.0f / 16;

/// What the rest of an fp16 is multiplied by: it has the magnitude of the fp16 then.
constexpr float kRestUnit = 2048;

/// Two neighbouring elements, packed.
struct SplitPair {
  u32 upper, lower;
};

template <class Elem>
__device__ inline SplitPair split2(float x, float y);
template <class Elem>
__device__ inline float2 join2(SplitPair pair);

template <>
__device__ inline SplitPair split2<bf16>(float x, float y) {
  const u32 x_bits = __float_as_uint(x) + 0x8000, y_bits = __float_as_uint(y) + 0x8000;
  return {__byte_perm(x_bits, y_bits, 0x7632), __byte_perm(x_bits, y_bits, 0x5410)};
}
template <>
__device__ inline float2 join2<bf16>(SplitPair pair) {
  return make_float2(__uint_as_float(__byte_perm(pair.lower, pair.upper, 0x5410) - 0x8000),
                     __uint_as_float(__byte_perm(pair.lower, pair.upper, 0x7632) - 0x8000));
}

template <>
__device__ inline SplitPair split2<fp16>(float x, float y) {
  x *= kResidualUnit<fp16>;
  y *= kResidualUnit<fp16>;
  const u32 upper = pack2<fp16>(x, y);
  return {upper, pack2<fp16>((x - low_half(fp16{}, upper)) * kRestUnit,
                             (y - high_half(fp16{}, upper)) * kRestUnit)};
}
template <>
__device__ inline float2 join2<fp16>(SplitPair pair) {
  constexpr float kUnit = 1 / kResidualUnit<fp16>, kRest = kUnit / kRestUnit;
  return make_float2(
      __fmaf_rn(low_half(fp16{}, pair.lower), kRest, low_half(fp16{}, pair.upper) * kUnit),
      __fmaf_rn(high_half(fp16{}, pair.lower), kRest, high_half(fp16{}, pair.upper) * kUnit));
}

/// Eight neighbouring elements.
struct SplitEight {
  uint4 upper, lower;
};

template <class Elem>
__device__ inline SplitEight split8(const float (&x)[8]) {
  SplitPair p[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) p[i] = split2<Elem>(x[2 * i], x[2 * i + 1]);
  return {make_uint4(p[0].upper, p[1].upper, p[2].upper, p[3].upper),
          make_uint4(p[0].lower, p[1].lower, p[2].lower, p[3].lower)};
}
template <class Elem>
__device__ inline Float8 join8(const SplitEight& x) {
  const float2 a = join2<Elem>({x.upper.x, x.lower.x}), b = join2<Elem>({x.upper.y, x.lower.y});
  const float2 c = join2<Elem>({x.upper.z, x.lower.z}), d = join2<Elem>({x.upper.w, x.lower.w});
  return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
}

/// x in memory: `upper` [rows, D], and `lower` [rows, D] unless it is fp32. Numbers of elements are
/// multiples of 8, addresses of 16 bytes.
template <class Elem>
struct ResidualStream {
  Elem* upper;
  Elem* lower;

  __device__ SplitEight load(long long at) const {
    return {*reinterpret_cast<const uint4*>(upper + at),
            *reinterpret_cast<const uint4*>(lower + at)};
  }
  __device__ void store(long long at, const SplitEight& x) const {
    store16(upper + at, x.upper);
    store16(lower + at, x.lower);
  }
  __device__ Float8 load8(long long at) const { return join8<Elem>(load(at)); }
  __device__ void store8(long long at, const Float8& x) const { store(at, split8<Elem>(x.v)); }
};

template <>
struct ResidualStream<fp32> {
  fp32* upper;
  fp32* lower;  ///< not touched

  __device__ Float8 load8(long long at) const { return ::load8(upper + at); }
  __device__ void store8(long long at, const Float8& x) const { ::store8(upper + at, x); }
};
