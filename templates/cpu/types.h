// Element types of the CPU kernels, and what a block is told about its place in the grid.
// Kernels see no system header, only the files of this folder. Every program is one translation
// unit, so all that a header defines is local to it: what a kernel does not use leaves no code.
#pragma once

using fp32 = float;

/// Storage only; load() converts.
struct bf16 {
  unsigned short bits;
};
struct fp16 {
  unsigned short bits;
};

/// The index of this block and the size of the grid. The engine calls an entry once per block, in
/// any order and on any threads; the same thread will probably go on with a block whose x is
/// next_x, or is done if that is nx.
struct Block {
  unsigned x, y, z;
  unsigned nx, ny, nz;
  unsigned next_x;
};

namespace {

inline fp32 to_fp32(fp32 x) {
  return x;
}
inline fp32 to_fp32(bf16 x) {
  return __builtin_bit_cast(fp32, static_cast<unsigned>(x.bits) << 16);
}

/// Half-open.
struct Range {
  int begin, end;
};

/// The part of `count` items that share number `index` of `shares` equal ones works on. This is how
/// row kernels follow any grid: the launch rule decides only how fine the work is split.
inline Range share_of(int count, unsigned index, unsigned shares) {
  const long long n = count;
  return {static_cast<int>(n * index / shares), static_cast<int>(n * (index + 1) / shares)};
}

/// A number known to the compiler, passed as an argument: `Count<4>()`.
template <int N>
struct Count {
  static constexpr int value = N;
  constexpr operator int() const { return N; }
};

}  // namespace
