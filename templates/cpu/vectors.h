// Vectors of floats as wide as the processor's registers, in Clang's portable vector extension.
// Runs of floats whose length is no multiple of the width end in a shorter vector; its unused lanes
// are zero, and its length is a Count, so that no test is left in the machine code.
#pragma once

#include "types.h"

namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

/// Accumulators that fit in registers beside the operands of a product.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kAccumulators = 24;
#else
constexpr int kAccumulators = 12;
#endif

typedef fp32 Vec __attribute__((ext_vector_type(kWidth)));
typedef int VecInt __attribute__((ext_vector_type(kWidth)));
typedef unsigned VecUint __attribute__((ext_vector_type(kWidth)));
typedef unsigned short VecUshort __attribute__((ext_vector_type(kWidth)));

/// a * b + c, rounded once where the processor can.
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// Lane by lane; a comparison of vectors gives a condition.
inline Vec select(VecInt condition, Vec yes, Vec no) {
  return condition ? yes : no;
}

/// The larger of both; `b` where one of them is no number.
inline Vec max(Vec a, Vec b) {
  return select(a > b, a, b);
}

/// The smaller of both; `b` where one of them is no number.
inline Vec min(Vec a, Vec b) {
  return select(a < b, a, b);
}

template <int N>
inline Vec load(const fp32* from, Count<N>) {
  Vec v = 0;
  __builtin_memcpy(&v, from, N * sizeof(fp32));
  return v;
}

template <int N>
inline VecUint load_bits(const void* from, Count<N>) {
  VecUshort bits = 0;
  __builtin_memcpy(&bits, from, N * sizeof(unsigned short));
  return __builtin_convertvector(bits, VecUint);
}

template <int N>
inline Vec load(const bf16* from, Count<N> n) {
  return __builtin_bit_cast(Vec, load_bits(from, n) << 16);
}

/// Exact for every value. A multiplication moves the exponent, so that subnormals need no case of
/// their own; infinities and NaN keep their exponent of ones.
template <int N>
inline Vec load(const fp16* from, Count<N> n) {
  const VecUint bits = load_bits(from, n);
  const VecUint magnitude = (bits & 0x7fff) << 13;
  const Vec scaled = __builtin_bit_cast(Vec, magnitude) * 0x1p112f;
  const Vec special = __builtin_bit_cast(Vec, magnitude | 0x7f800000);
  const Vec value = select(magnitude >= (0x7c00 << 13), special, scaled);
  return __builtin_bit_cast(Vec, __builtin_bit_cast(VecUint, value) | (bits & 0x8000) << 16);
}

template <class T>
inline Vec load(const T* from) {
  return load(from, Count<kWidth>());
}

/// Sets the lanes past the first N to zero.
template <int N>
inline Vec clear_unused(Vec v, Count<N>) {
  for (int i = N; i < kWidth; ++i) v[i] = 0;
  return v;
}

template <int N>
inline void store(fp32* to, Vec v, Count<N>) {
  __builtin_memcpy(to, &v, N * sizeof(fp32));
}

/// Rounded to nearest, ties to even; infinities stay, NaN stays NaN. Numbers below 2^-126 may
/// become zero, as they do in the instruction for products of bf16. In integers where the processor
/// has no conversion of its own: the compiler's would be a call of its runtime.
inline VecUshort bf16_bits(Vec v) {
#if defined(__AVX512BF16__)
  typedef __bf16 Bf16s __attribute__((ext_vector_type(kWidth)));
  return __builtin_bit_cast(VecUshort, __builtin_convertvector(v, Bf16s));
#else
  const VecUint bits = __builtin_bit_cast(VecUint, v);
  const VecUint rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const VecUint kept = v != v ? bits | 0x400000 : rounded;
  return __builtin_convertvector(kept >> 16, VecUshort);
#endif
}

template <int N>
inline void store(bf16* to, Vec v, Count<N>) {
  const VecUshort bits = bf16_bits(v);
  __builtin_memcpy(to, &bits, N * sizeof(bf16));
}

template <class T>
inline void store(T* to, Vec v) {
  store(to, v, Count<kWidth>());
}

/// Calls f(offset, Count of lanes) for each vector of a run of N floats, in order.
template <int N, class F>
inline void for_vectors(F f) {
  constexpr int kWhole = N / kWidth * kWidth;
  for (int i = 0; i < kWhole; i += kWidth) f(i, Count<kWidth>());
  if constexpr (kWhole < N) f(kWhole, Count<N - kWhole>());
}

/// Sum of all lanes, in an order that only depends on the width.
inline fp32 sum(Vec v) {
  fp32 lanes[kWidth];
  __builtin_memcpy(lanes, &v, sizeof(v));
  for (int half = kWidth / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// Sum of a[i] * b[i] over N floats.
template <int N>
inline fp32 dot(const fp32* a, const fp32* b) {
  Vec total = 0;
  for_vectors<N>([&](int i, auto n) { total = fma(load(a + i, n), load(b + i, n), total); });
  return sum(total);
}

}  // namespace
