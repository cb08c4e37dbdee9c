// Hopper's warpgroup matrix products: D[64, N] += A[64, 16] * B[16, N] by 4 consecutive warps, with
// fp32 sums in registers, B in shared memory and A in shared memory or registers. For sm_90a.
//
// Sums: with g = lane / 4, t = lane % 4, warp w of the warpgroup and column block j of 8 columns,
// d[4j + 0, 1] are row 16w + g and columns 8j + 2t, + 1, and d[4j + 2, 3] the same of row + 8.
// A in registers, 16 x 16 for each warp: (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8), 2
// elements along k each.
//
// The products run by themselves. Between fence_products() and wait_for_products() nothing else may
// touch the sums, the registers of A and the shared memory that is read.
#pragma once

#include "types.cuh"

/// Orders accesses to registers by ordinary instructions before the products that follow.
__device__ inline void fence_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Closes a group of products; wait_for_products<n>() waits until at most the n youngest groups are
/// still running.
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Groups>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Groups) : "memory");
}

/// Keeps the compiler from moving accesses to `d` across this point.
template <int Count>
__device__ inline void pin(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int Steps>
__device__ inline void pin(u32 (&a)[Steps][4]) {
#pragma unroll
  for (int i = 0; i < Steps; ++i) {
    asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
  }
}

// An operand in shared memory is made of atoms of 8 rows x 128 bytes with the 128-byte swizzle, as
// a tensor map writes them; each begins at a multiple of 1,024 bytes. Its descriptor holds
// addresses in units of 16 bytes: the start, and the distances to the next atom.

enum : u64 { kSwizzle128 = u64{1} << 62 };

/// Rows are rows of A or columns of B, 64 elements of k each; atoms of 8 rows follow each other.
/// Step i of 16 k begins at address + 32 * i.
__device__ inline u64 k_major_operand(u32 address) {
  return kSwizzle128 | u64{1024 / 16} << 32 | u64{1} << 16 | (address & 0x3ffff) / 16;
}

/// B whose rows are k and hold 64 columns each; atoms of 8 k follow each other. Only for N = 64.
/// Step i of 16 k begins at address + 2,048 * i.
__device__ inline u64 n_major_operand(u32 address) {
  return kSwizzle128 | u64{1024 / 16} << 32 | u64{1024 / 16} << 16 | (address & 0x3ffff) / 16;
}

/// The operand that begins `bytes` further on: a sum of 32 bits, which is all that addresses need.
__device__ inline u64 operand_at(u64 operand, u32 bytes) {
  return operand >> 32 << 32 | (static_cast<u32>(operand) + bytes / 16);
}

// Lists of 4 registers times the number of column blocks, for constraints and for the instruction.
#define LAYA_F(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define LAYA_D1 LAYA_F(0)
#define LAYA_D2 LAYA_D1, LAYA_F(4)
#define LAYA_D3 LAYA_D2, LAYA_F(8)
#define LAYA_D4 LAYA_D3, LAYA_F(12)
#define LAYA_D5 LAYA_D4, LAYA_F(16)
#define LAYA_D6 LAYA_D5, LAYA_F(20)
#define LAYA_D7 LAYA_D6, LAYA_F(24)
#define LAYA_D8 LAYA_D7, LAYA_F(28)
#define LAYA_D9 LAYA_D8, LAYA_F(32)
#define LAYA_D10 LAYA_D9, LAYA_F(36)
#define LAYA_D11 LAYA_D10, LAYA_F(40)
#define LAYA_D12 LAYA_D11, LAYA_F(44)
#define LAYA_D13 LAYA_D12, LAYA_F(48)
#define LAYA_D14 LAYA_D13, LAYA_F(52)
#define LAYA_D15 LAYA_D14, LAYA_F(56)
#define LAYA_D16 LAYA_D15, LAYA_F(60)
#define LAYA_D17 LAYA_D16, LAYA_F(64)
#define LAYA_D18 LAYA_D17, LAYA_F(68)
#define LAYA_D19 LAYA_D18, LAYA_F(72)
#define LAYA_D20 LAYA_D19, LAYA_F(76)
#define LAYA_D21 LAYA_D20, LAYA_F(80)
#define LAYA_D22 LAYA_D21, LAYA_F(84)
#define LAYA_D23 LAYA_D22, LAYA_F(88)
#define LAYA_D24 LAYA_D23, LAYA_F(92)
#define LAYA_D25 LAYA_D24, LAYA_F(96)
#define LAYA_D26 LAYA_D25, LAYA_F(100)
#define LAYA_D27 LAYA_D26, LAYA_F(104)
#define LAYA_D28 LAYA_D27, LAYA_F(108)
#define LAYA_D29 LAYA_D28, LAYA_F(112)
#define LAYA_D30 LAYA_D29, LAYA_F(116)
#define LAYA_D31 LAYA_D30, LAYA_F(120)
#define LAYA_D32 LAYA_D31, LAYA_F(124)
#define LAYA_S1 "%0, %1, %2, %3"
#define LAYA_S2 LAYA_S1 ", %4, %5, %6, %7"
#define LAYA_S3 LAYA_S2 ", %8, %9, %10, %11"
#define LAYA_S4 LAYA_S3 ", %12, %13, %14, %15"
#define LAYA_S5 LAYA_S4 ", %16, %17, %18, %19"
#define LAYA_S6 LAYA_S5 ", %20, %21, %22, %23"
#define LAYA_S7 LAYA_S6 ", %24, %25, %26, %27"
#define LAYA_S8 LAYA_S7 ", %28, %29, %30, %31"
#define LAYA_S9 LAYA_S8 ", %32, %33, %34, %35"
#define LAYA_S10 LAYA_S9 ", %36, %37, %38, %39"
#define LAYA_S11 LAYA_S10 ", %40, %41, %42, %43"
#define LAYA_S12 LAYA_S11 ", %44, %45, %46, %47"
#define LAYA_S13 LAYA_S12 ", %48, %49, %50, %51"
#define LAYA_S14 LAYA_S13 ", %52, %53, %54, %55"
#define LAYA_S15 LAYA_S14 ", %56, %57, %58, %59"
#define LAYA_S16 LAYA_S15 ", %60, %61, %62, %63"
#define LAYA_S17 LAYA_S16 ", %64, %65, %66, %67"
#define LAYA_S18 LAYA_S17 ", %68, %69, %70, %71"
#define LAYA_S19 LAYA_S18 ", %72, %73, %74, %75"
#define LAYA_S20 LAYA_S19 ", %76, %77, %78, %79"
#define LAYA_S21 LAYA_S20 ", %80, %81, %82, %83"
#define LAYA_S22 LAYA_S21 ", %84, %85, %86, %87"
#define LAYA_S23 LAYA_S22 ", %88, %89, %90, %91"
#define LAYA_S24 LAYA_S23 ", %92, %93, %94, %95"
#define LAYA_S25 LAYA_S24 ", %96, %97, %98, %99"
#define LAYA_S26 LAYA_S25 ", %100, %101, %102, %103"
#define LAYA_S27 LAYA_S26 ", %104, %105, %106, %107"
#define LAYA_S28 LAYA_S27 ", %108, %109, %110, %111"
#define LAYA_S29 LAYA_S28 ", %112, %113, %114, %115"
#define LAYA_S30 LAYA_S29 ", %116, %117, %118, %119"
#define LAYA_S31 LAYA_S30 ", %120, %121, %122, %123"
#define LAYA_S32 LAYA_S31 ", %124, %125, %126, %127"

// X(N, N / 8, and the numbers of the operands that follow N / 2 sums)
// clang-format off
#define LAYA_PRODUCT_SIZES(X)                                                       \
  X(32, 4, 16, 17, 18)      X(64, 8, 32, 33, 34)      X(96, 12, 48, 49, 50)         \
  X(128, 16, 64, 65, 66)    X(160, 20, 80, 81, 82)    X(192, 24, 96, 97, 98)        \
  X(224, 28, 112, 113, 114) X(256, 32, 128, 129, 130)
// clang-format on

// Four products of 16 k, whose operands begin 32 bytes after each other: 2 units of a descriptor.
// In one statement, since the compiler takes long for statements with so many operands.
// clang-format off
#define LAYA_STEP(n, blocks, a, b, add, type)                                               \
  "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" LAYA_S##blocks "}, " \
  a ", " b ", " add ", 1, 1, 0, 0;\n"
#define LAYA_NEXT(to, from, units)          \
  "mov.b64 {low, high}, " from ";\n"        \
  "add.u32 low, low, " units ";\n"          \
  "mov.b64 " to ", {low, high};\n"
#define LAYA_PRODUCT(n, blocks, a, b, p, type)                                         \
  asm volatile("{\n.reg .pred p;\n.reg .b32 low, high;\n"                              \
               ".reg .b64 a1, a2, a3, b1, b2, b3;\n"                                   \
               LAYA_NEXT("a1", "%" #a, "2") LAYA_NEXT("b1", "%" #b, "2")               \
               LAYA_NEXT("a2", "%" #a, "4") LAYA_NEXT("b2", "%" #b, "4")               \
               LAYA_NEXT("a3", "%" #a, "6") LAYA_NEXT("b3", "%" #b, "6")               \
               "setp.ne.b32 p, %" #p ", 0;\n"                                          \
               LAYA_STEP(n, blocks, "%" #a, "%" #b, "p", type)                         \
               LAYA_STEP(n, blocks, "a1", "b1", "1", type)                             \
               LAYA_STEP(n, blocks, "a2", "b2", "1", type)                             \
               LAYA_STEP(n, blocks, "a3", "b3", "1", type)                             \
               "}"                                                                     \
               : LAYA_D##blocks                                                        \
               : "l"(a_operand), "l"(b_operand), "r"(add))
// clang-format on

template <class Elem>
constexpr bool kIsBf16 = false;
template <>
constexpr bool kIsBf16<bf16> = true;

// A specialization for each size: the compiler reads those it needs; of one function with all sizes
// it would read them all.
template <class Elem, int N>
struct SlabProduct;
#define LAYA_PRODUCT_CASE(n, blocks, a, b, p)                                                 \
  template <class Elem>                                                                       \
  struct SlabProduct<Elem, n> {                                                               \
    __device__ static void add_to(float (&d)[n / 2], u64 a_operand, u64 b_operand, int add) { \
      if constexpr (kIsBf16<Elem>) {                                                          \
        LAYA_PRODUCT(n, blocks, a, b, p, "bf16");                                             \
      } else {                                                                                \
        LAYA_PRODUCT(n, blocks, a, b, p, "f16");                                              \
      }                                                                                       \
    }                                                                                         \
  };
LAYA_PRODUCT_SIZES(LAYA_PRODUCT_CASE)

/// d = a * b + (add ? d : 0) over 64 k, both operands K-major in shared memory. N: one of the sizes
/// above.
template <class Elem, int N>
__device__ inline void multiply_slab(float (&d)[N / 2], u64 a_operand, u64 b_operand, int add) {
  SlabProduct<Elem, N>::add_to(d, a_operand, b_operand, add);
}

#undef LAYA_PRODUCT_CASE
#undef LAYA_PRODUCT
#undef LAYA_NEXT
#undef LAYA_STEP

#define LAYA_PRODUCT(n, blocks, a0, a1, a2, a3, b, p, type, n_major)                               \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p                                             \
               ", 0;\n"                                                                            \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" LAYA_S##blocks \
               "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", p, 1, 1, " #n_major ";\n}"   \
               : LAYA_D##blocks                                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_operand), "r"(add))
#define LAYA_PRODUCT_CASE(n, blocks, a0, a1, a2, a3, b, p, n_major) \
  if constexpr (N == n && kIsBf16<Elem>)                            \
    LAYA_PRODUCT(n, blocks, a0, a1, a2, a3, b, p, "bf16", n_major); \
  if constexpr (N == n && !kIsBf16<Elem>)                           \
    LAYA_PRODUCT(n, blocks, a0, a1, a2, a3, b, p, "f16", n_major);

/// d = a * b + (add ? d : 0) over 16 k, A in registers, B K-major. N: 64 or 128.
template <class Elem, int N>
__device__ inline void multiply(float (&d)[N / 2], const u32 (&a)[4], u64 b_operand, int add) {
  static_assert(N == 64 || N == 128);
  LAYA_PRODUCT_CASE(64, 8, 32, 33, 34, 35, 36, 37, 0)
  LAYA_PRODUCT_CASE(128, 16, 64, 65, 66, 67, 68, 69, 0)
}

/// The same for an n_major_operand(): 64 columns.
template <class Elem>
__device__ inline void multiply_n_major(float (&d)[32], const u32 (&a)[4], u64 b_operand, int add) {
  constexpr int N = 64;
  LAYA_PRODUCT_CASE(64, 8, 32, 33, 34, 35, 36, 37, 1)
}

#undef LAYA_PRODUCT_CASE
#undef LAYA_PRODUCT
