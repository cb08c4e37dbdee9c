// Which keys a warp's queries see: those of their own sequence, and with a window only keys at a
// distance of at most Window.
#pragma once

/// `Rows` queries from first_query on, in a sequence of `length` rows; positions count from the
/// sequence's start. Window 0: no window.
template <int Rows, int Window>
struct Band {
  int first_query;
  int length;

  /// A query sees the keys first_key..end_key - 1.
  __device__ int first_key(int query) const { return Window == 0 ? 0 : query - Window; }
  __device__ int end_key(int query) const {
    return Window == 0 ? length : min(length, query + Window + 1);
  }
  /// No query sees any of `count` keys from `key` on.
  __device__ bool skips(int key, int count) const {
    if (first_query >= length) return true;
    return Window != 0 &&
           (key > first_query + Rows - 1 + Window || key + count - 1 < first_query - Window);
  }
  /// Every query sees all of them.
  __device__ bool covers(int key, int count) const {
    return key + count <= length && (Window == 0 || (key >= first_query + Rows - 1 - Window &&
                                                     key + count - 1 <= first_query + Window));
  }
};

/// 2^x, with a relative error of about 2^-22; 0 for -infinity.
__device__ inline float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// log2(e) / sqrt(HeadDim): turns scores into exponents of 2.
template <int HeadDim>
constexpr float kScoreScale = 1.4426950408889634 * (HeadDim == 32   ? 0.17677669529663689
                                                    : HeadDim == 64 ? 0.125
                                                                    : 0.08838834764831845);
