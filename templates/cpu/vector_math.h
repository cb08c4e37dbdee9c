// exp, log and erf on vectors, to about 1 unit in the last place of fp32, and GELU to the last
// place of the element type that it is written in. The coefficients are minimax fits, rounded to
// fp32 one after the other with the rest refitted.
#pragma once

#include "vectors.h"

namespace {

/// c[0] + c[1] * x + c[2] * x^2 + ...
template <int N>
inline Vec polynomial(Vec x, const fp32 (&c)[N]) {
  Vec value = c[N - 1];
#pragma clang loop unroll(full)
  for (int i = N - 2; i >= 0; --i) value = fma(value, x, c[i]);
  return value;
}

/// 2^r for |r| <= 0.5, to what the element type can hold.
inline Vec exp2_of_fraction(Vec r, fp32) {
  return polynomial(r, {1.0f, 6.931471825e-1f, 2.402264774e-1f, 5.550359935e-2f, 9.618505836e-3f,
                        1.339080627e-3f, 1.532646274e-4f});
}
inline Vec exp2_of_fraction(Vec r, bf16) {
  return polynomial(r, {9.999280440e-1f, 6.932610299e-1f, 2.426116366e-1f, 5.517164172e-2f});
}

/// 2^r * 2^n with |r| <= 0.5. `n` sits in the low bits of `shifted`; the caller keeps it in
/// [-126, 0].
template <class T = fp32>
inline Vec scaled_exp2(Vec r, Vec shifted, T precision = {}) {
  const Vec power = exp2_of_fraction(r, precision);
  const VecInt exponent = __builtin_bit_cast(VecInt, shifted) << 23;
  return __builtin_bit_cast(Vec, __builtin_bit_cast(VecInt, power) + exponent);
}

/// Adding this number rounds to an integer and leaves it in the low bits.
constexpr fp32 kRoundingShift = 0x1.8p23f;

/// 2^x for x <= 0, also -inf; results below 2^-126 become 0. NaN stays NaN.
inline Vec exp2_of_nonpositive(Vec x) {
  const Vec shifted = x + kRoundingShift;
  const Vec power = scaled_exp2(x - (shifted - kRoundingShift), shifted);
  return select(x < -126.0f, 0, power);
}

/// e^x for x <= 0, also -inf; results below 2^-126 become 0. NaN stays NaN.
inline Vec exp_of_nonpositive(Vec x) {
  constexpr fp32 kLog2E = 1.442695041f;
  const Vec shifted = fma(x, kLog2E, kRoundingShift);
  const Vec n = shifted - kRoundingShift;
  // ln 2 in two parts, the first of few bits, so that n times it is exact.
  const Vec r = fma(n, -1.42860677e-6f, fma(n, -0.693145752f, x));
  return select(x < -87.3365f, 0, scaled_exp2(r * kLog2E, shifted));
}

/// Natural logarithm of a normal x > 0.
inline Vec log(Vec x) {
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)).
  const VecInt bits = __builtin_bit_cast(VecInt, x);
  const VecInt e = (bits - 0x3f3504f3) >> 23;
  const Vec f = __builtin_bit_cast(Vec, bits - (e << 23)) - 1.0f;
  const Vec tail =
      polynomial(f, {3.333333135e-1f, -2.500081956e-1f, 2.000124156e-1f, -1.662340909e-1f,
                     1.420157999e-1f, -1.315961033e-1f, 1.276221722e-1f, -7.636439055e-2f});
  const Vec n = __builtin_convertvector(e, Vec);
  const Vec small = fma(f * f, fma(f, tail, -0.5f), n * 1.42860677e-6f);
  return fma(n, 0.693145752f, f + small);
}

/// The error function. Near zero x + x * p(x^2); further out 1 - erfc, where log2(erfc) is a
/// polynomial.
inline Vec erf(Vec x) {
  const Vec magnitude = __builtin_elementwise_abs(x);
  const Vec near = fma(x,
                       polynomial(x * x, {1.283791512e-1f, -3.761250079e-1f, 1.128187701e-1f,
                                          -2.676858008e-2f, 4.995853174e-3f, -6.003795424e-4f}),
                       x);
  // erf is 1 in fp32 from 3.92 on, and the polynomial is good up to 4.
  const Vec t = select(magnitude > 4.0f, 4.0f, magnitude);
  const Vec log2_erfc = t * polynomial(t, {-1.628102064f, -9.171476960e-1f, -1.518606842e-1f,
                                           3.302320093e-2f, -4.638190847e-3f, 3.087145742e-4f});
  const Vec far = __builtin_elementwise_copysign(1.0f - exp2_of_nonpositive(log2_erfc), x);
  return select(magnitude < 0.92f, near, far);
}

/// log2 of P(standard normal > t), for t in [0, 6.5], to what the element type can hold.
inline Vec log2_of_tail(Vec t, fp32) {
  return polynomial(
      t, {-1.0f, -1.151106715f, -4.591969848e-1f, -5.251912028e-2f, 7.071435917e-3f,
          -1.131823956e-4f, -2.168053470e-4f, 5.456975123e-5f, -6.288885288e-6f, 2.977531324e-7f});
}
inline Vec log2_of_tail(Vec t, bf16) {
  return polynomial(t, {-1.0f, -1.150466204f, -4.614075124e-1f, -5.027748644e-2f, 6.452200469e-3f,
                        -3.870175278e-4f});
}

/// x * P(standard normal <= x), the exact GELU, to what T can hold: max(x, 0) - |x| * P(standard
/// normal > |x|). From |x| = 6.5 on the second term stays what it is there, 3e-10.
template <class T = fp32>
inline Vec gelu(Vec x) {
  const Vec magnitude = __builtin_elementwise_abs(x);
  const Vec t = min(6.5f, magnitude);
  const Vec log2_tail = log2_of_tail(t, T());
  const Vec shifted = log2_tail + kRoundingShift;
  const Vec tail = scaled_exp2(log2_tail - (shifted - kRoundingShift), shifted, T());
  return fma(-t, tail, max(0, x));
}

}  // namespace
