// The tensor core instructions for 16-bit elements: loading fragments from shared memory and the
// product of a 16 x 16 by a 16 x 8 fragment, accumulated in fp32.
//
// Fragments, with g = lane / 4 and t = lane % 4:
//   A 16 x 16, 4 registers of 2 elements along k: (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8)
//   B 16 x 8,  2 registers of 2 elements along k: (2t, g) (2t + 8, g)
//   C 16 x 8,  4 floats: (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1)
#pragma once

#include "types.cuh"

/// Four 8 x 8 matrices of 16-bit elements. Lane l gives the address of row l % 8 of matrix l / 8
/// and receives elements (g, 2t) and (g, 2t + 1) of each.
__device__ inline void load_matrices(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
/// The same, transposed: receives elements (2t, g) and (2t + 1, g).
__device__ inline void load_matrices_transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

#define LAYA_MMA_16816(type)                                 \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type \
      ".f32 {%0, %1, %2, %3}, "                              \
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"        \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

/// c += a * b.
template <class Elem>
__device__ inline void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);

#if __CUDA_ARCH__ >= 800
template <>
__device__ inline void multiply_add<fp16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  LAYA_MMA_16816("f16");
}
template <>
__device__ inline void multiply_add<bf16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  LAYA_MMA_16816("bf16");
}
#else
/// Compute capability 7.5 has half the depth, so that this takes two steps.
template <>
__device__ inline void multiply_add<fp16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const u32 b[2] = {b0, b1};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
  }
}
#endif
#undef LAYA_MMA_16816
