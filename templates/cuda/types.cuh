// Element types of the CUDA templates and their conversions to and from fp32, and 8 elements at a
// time through 16-byte loads and stores. Stands alone: no CUDA header is needed, which keeps the
// front end of the compiler fast.
//
// Integer constants of all templates, but for those that depend on a type, are enumerators: NVRTC
// makes an object in the GPU's memory of each constexpr variable outside of functions, and the
// driver takes 3 us for each when it loads a kernel.
#pragma once

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

using fp32 = float;
struct fp16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

template <class Elem>
constexpr bool kIsFp32 = false;
template <>
constexpr bool kIsFp32<fp32> = true;

__device__ inline float to_fp32(fp32 value) {
  return value;
}
__device__ inline float to_fp32(fp16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
__device__ inline float to_fp32(bf16 value) {
  return __uint_as_float(static_cast<u32>(value.bits) << 16);
}

/// Two values rounded to nearest even and packed, `low` in the lower half.
template <class Elem>
__device__ inline u32 pack2(float low, float high);

template <>
__device__ inline u32 pack2<fp16>(float low, float high) {
  u32 result;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
#else
  asm("{\n.reg .f16 lo, hi;\ncvt.rn.f16.f32 lo, %1;\ncvt.rn.f16.f32 hi, %2;\n"
      "mov.b32 %0, {lo, hi};\n}"
      : "=r"(result)
      : "f"(low), "f"(high));
#endif
  return result;
}

#if __CUDA_ARCH__ >= 800
template <>
__device__ inline u32 pack2<bf16>(float low, float high) {
  u32 result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}
#else
template <class Elem>
constexpr bool kNever = false;
template <class Elem>
__device__ inline u32 pack2(float, float) {
  static_assert(kNever<Elem>, "bf16 needs compute capability 8.0; use fp16 on this GPU");
  return 0;
}
#endif

/// 8 consecutive values in fp32.
struct Float8 {
  float v[8];
};

__device__ inline Float8 zero8() {
  return {{0, 0, 0, 0, 0, 0, 0, 0}};
}

/// 8 elements from an address aligned to 16 bytes.
__device__ inline Float8 load8(const fp32* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0];
  const float4 b = reinterpret_cast<const float4*>(from)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ inline float low_half(fp16, u32 pair) {
  return to_fp32(fp16{static_cast<u16>(pair)});
}
__device__ inline float high_half(fp16, u32 pair) {
  return to_fp32(fp16{static_cast<u16>(pair >> 16)});
}
__device__ inline float low_half(bf16, u32 pair) {
  return __uint_as_float(pair << 16);
}
__device__ inline float high_half(bf16, u32 pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

template <class Elem>
__device__ inline Float8 load8(const Elem* from) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const Elem tag{};
  return {{low_half(tag, raw.x), high_half(tag, raw.x), low_half(tag, raw.y), high_half(tag, raw.y),
           low_half(tag, raw.z), high_half(tag, raw.z), low_half(tag, raw.w),
           high_half(tag, raw.w)}};
}

/// Stores 16 bytes to an aligned address by one instruction: where only some threads store, the
/// compiler would make it four.
__device__ inline void store16(void* to, const uint4& x) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w)
               : "memory");
}

/// Rounds and stores 8 elements to an address aligned to 16 bytes.
__device__ inline void store8(fp32* to, const Float8& x) {
  reinterpret_cast<float4*>(to)[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}
template <class Elem>
__device__ inline void store8(Elem* to, const Float8& x) {
  store16(to, make_uint4(pack2<Elem>(x.v[0], x.v[1]), pack2<Elem>(x.v[2], x.v[3]),
                         pack2<Elem>(x.v[4], x.v[5]), pack2<Elem>(x.v[6], x.v[7])));
}

/// Rounds and stores 4 elements to an address in global memory, aligned to 8 bytes.
template <class Elem>
__device__ inline void store4(Elem* to, const float (&x)[4]) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(pack2<Elem>(x[0], x[1])),
               "r"(pack2<Elem>(x[2], x[3]))
               : "memory");
}

/// x * y + z, element by element.
__device__ inline Float8 scale_and_add(const Float8& x, const Float8& y, const Float8& z) {
  Float8 result;
#pragma unroll
  for (int i = 0; i < 8; ++i) result.v[i] = __fmaf_rn(x.v[i], y.v[i], z.v[i]);
  return result;
}

__device__ inline Float8 scale(const Float8& x, const Float8& y) {
  Float8 result;
#pragma unroll
  for (int i = 0; i < 8; ++i) result.v[i] = x.v[i] * y.v[i];
  return result;
}

__device__ inline Float8 add(const Float8& x, const Float8& y) {
  Float8 result;
#pragma unroll
  for (int i = 0; i < 8; ++i) result.v[i] = x.v[i] + y.v[i];
  return result;
}

__device__ inline Float8 scale(const Float8& x, float y) {
  Float8 result;
#pragma unroll
  for (int i = 0; i < 8; ++i) result.v[i] = x.v[i] * y;
  return result;
}
