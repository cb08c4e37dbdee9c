// One warp's part of attention: Rows queries against block after block of keys, with the softmax
// taken online: running maximum and sum of each row, and an output that is rescaled when the
// maximum grows. A block that is fully masked leaves a row's state as it is, bit for bit, so that
// skipping such blocks changes nothing.
//
// Tiles of q, k and v in shared memory have rows of HeadDim elements, swizzled (async_copy.cuh).
#pragma once

#include "async_copy.cuh"
#include "attention_band.cuh"
#include "mma.cuh"
#include "reduce.cuh"

/// What exponents are taken relative to; any number does for a row that has seen no key yet.
__device__ inline float softmax_base(float top, float scale) {
  return top == -kInfinity ? 0 : __fmul_rn(top, scale);
}

/// 16-bit elements on tensor cores. Fragments as in mma.cuh; the probabilities are rounded to Elem
/// for the product with v.
template <class Elem, int Rows, int HeadDim>
class AttentionWarp {
 public:
  enum : int { kKeys = 64 };         ///< keys of a block
  enum : int { kScratchBytes = 0 };  ///< shared memory of one warp beside the tiles

  /// `q`: address of this warp's rows; their memory is reused by store().
  __device__ AttentionWarp(u32 q, u32 /*scratch*/) : q_(q) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) top_[i][0] = top_[i][1] = -kInfinity;
  }

  /// Takes in kKeys keys from `key` on, whose tiles are at `k` and `v`.
  template <class Mask>
  __device__ void add_keys(u32 k, u32 v, int key, const Mask& mask) {
    float scores[kRowTiles][kKeyTiles][4] = {};
    multiply_keys(scores, k);
    if (!mask.covers(key, kKeys)) apply(mask, scores, key);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) update_row(scores[i], i, half);
    }
    multiply_values(scores, v);
  }

  /// Writes the normalised rows over the queries, for this warp only.
  __device__ void store() const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float inverse = 1.0f / lanes_sum<4>(sum_[i][half]);
        const int row = i * 16 + half * 8 + lane() / 4;
#pragma unroll
        for (int j = 0; j < kValueTiles; ++j) {
          const u32 pair =
              pack2<Elem>(output_[i][j][2 * half] * inverse, output_[i][j][2 * half + 1] * inverse);
          store_shared4(q_ + row * kRowBytes + swizzle<kChunks>(row, j) * 16 + lane() % 4 * 4,
                        pair);
        }
      }
    }
    __syncwarp();
  }

 private:
  enum : int { kRowBytes = HeadDim * 2, kChunks = kRowBytes / 16 };
  enum : int { kRowTiles = Rows / 16, kKeyTiles = kKeys / 8, kValueTiles = HeadDim / 8 };

  __device__ static int lane() { return threadIdx.x % 32; }

  /// scores = q * k^T, not yet scaled. The queries are read again for each block of keys: held in
  /// registers they would cost another block's place on the multiprocessor.
  __device__ void multiply_keys(float (&scores)[kRowTiles][kKeyTiles][4], u32 k) const {
    const u32 q_row = q_ + lane() % 16 * kRowBytes;
    const u32 k_row = k + (lane() / 16 * 8 + lane() % 8) * kRowBytes;
    const u32 q_chunk = swizzle<kChunks>(lane(), lane() / 16) * 16;
    const u32 k_chunk = swizzle<kChunks>(lane(), lane() / 8 % 2) * 16;
#pragma unroll 1
    for (int step = 0; step < HeadDim / 16; ++step) {
      u32 queries[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        load_matrices(queries[i], q_row + i * 16 * kRowBytes + (q_chunk ^ step * 32));
      }
#pragma unroll
      for (int j = 0; j < kKeyTiles / 2; ++j) {
        u32 keys[4];
        load_matrices(keys, k_row + j * 16 * kRowBytes + (k_chunk ^ step * 32));
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          multiply_add<Elem>(scores[i][2 * j], queries[i], keys[0], keys[1]);
          multiply_add<Elem>(scores[i][2 * j + 1], queries[i], keys[2], keys[3]);
        }
      }
    }
  }

  template <class Mask>
  __device__ static void apply(const Mask& mask, float (&scores)[kRowTiles][kKeyTiles][4],
                               int key) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = mask.first_query + i * 16 + half * 8 + lane() / 4;
        // Of this lane's keys, numbered from `key` on and without the lane's offset.
        const int first = mask.first_key(query) - key - lane() % 4 * 2;
        const u32 count = mask.end_key(query) - mask.first_key(query);
#pragma unroll
        for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (static_cast<u32>(j * 8 + e - first) >= count)
              scores[i][j][2 * half + e] = -kInfinity;
          }
        }
      }
    }
  }

  /// Turns the scores of one row of this lane into probabilities, relative to the row's new
  /// maximum, and brings its sum and output to the same base.
  __device__ void update_row(float (&scores)[kKeyTiles][4], int i, int half) {
    constexpr float kScale = kScoreScale<HeadDim>;
    float top = top_[i][half];
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
      top = fmaxf(top, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
    }
    top = lanes_max<4>(top);
    const float base = softmax_base(top, kScale);
    const float rescale = fast_exp2(__fsub_rn(__fmul_rn(top_[i][half], kScale), base));
    top_[i][half] = top;
    float sum = sum_[i][half] * rescale;
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        scores[j][e] = fast_exp2(__fmaf_rn(scores[j][e], kScale, -base));
        sum += scores[j][e];
      }
    }
    sum_[i][half] = sum;
#pragma unroll
    for (int j = 0; j < kValueTiles; ++j) {
      output_[i][j][2 * half] *= rescale;
      output_[i][j][2 * half + 1] *= rescale;
    }
  }

  /// output += probabilities * v. Two neighbouring score fragments make one A fragment.
  __device__ void multiply_values(const float (&p)[kRowTiles][kKeyTiles][4], u32 v) {
    const u32 row = v + lane() % 16 * kRowBytes, chunk = swizzle<kChunks>(lane(), lane() / 16) * 16;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      u32 left[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float* pair = &p[i][2 * step + r / 2][r % 2 * 2];
          left[i][r] = pack2<Elem>(pair[0], pair[1]);
        }
      }
#pragma unroll
      for (int j = 0; j < kValueTiles / 2; ++j) {
        u32 values[4];
        load_matrices_transposed(values, row + step * 16 * kRowBytes + (chunk ^ j * 32));
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          multiply_add<Elem>(output_[i][2 * j], left[i], values[0], values[1]);
          multiply_add<Elem>(output_[i][2 * j + 1], left[i], values[2], values[3]);
        }
      }
    }
  }

  u32 q_;
  float output_[kRowTiles][kValueTiles][4] = {};
  float top_[kRowTiles][2];       // largest score so far, unscaled
  float sum_[kRowTiles][2] = {};  // of probabilities; this lane's part
};

/// fp32 on the ordinary cores. Lane (y, x) of 4 x 8 has rows y + 4i; keys x + 8j of the scores and
/// chunks x + 8c of the output.
template <int Rows, int HeadDim>
class AttentionWarp<fp32, Rows, HeadDim> {
  enum : int { kPitch = 40 };  // floats from row to row of the probabilities

 public:
  enum : int { kKeys = 32 };
  enum : int { kScratchBytes = Rows * kPitch * 4 };

  __device__ AttentionWarp(u32 q, u32 scratch) : q_(q), p_(scratch) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) top_[i] = -kInfinity;
  }

  template <class Mask>
  __device__ void add_keys(u32 k, u32 v, int key, const Mask& mask) {
    float scores[kRows][kColumns] = {};
    multiply_keys(scores, k);
    const bool covered = mask.covers(key, kKeys);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int query = mask.first_query + y() + 4 * i, at = key + x() + 8 * j;
        const bool sees = mask.first_key(query) <= at && at < mask.end_key(query);
        if (!covered && !sees) scores[i][j] = -kInfinity;
      }
      update_row(scores[i], i);
    }
    __syncwarp();
    multiply_values(v);
    __syncwarp();  // the probabilities have been read
  }

  __device__ void store() const {
    __syncwarp();  // the queries have been read
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float inverse = 1.0f / lanes_sum<8>(sum_[i]);
#pragma unroll
      for (int c = 0; c < kValueChunks; ++c) {
        const float4& o = output_[i][c];
        store_shared16(chunk_at(q_, y() + 4 * i, x() + 8 * c),
                       make_float4(o.x * inverse, o.y * inverse, o.z * inverse, o.w * inverse));
      }
    }
    __syncwarp();
  }

 private:
  enum : int { kRowBytes = HeadDim * 4, kChunks = kRowBytes / 16 };
  enum : int { kRows = Rows / 4, kColumns = kKeys / 8, kValueChunks = kChunks / 8 };

  __device__ static int y() { return threadIdx.x % 32 / 8; }
  __device__ static int x() { return threadIdx.x % 8; }
  __device__ static u32 chunk_at(u32 tile, int row, int chunk) {
    return tile + row * kRowBytes + swizzle<kChunks>(row, chunk) * 16;
  }

  __device__ void multiply_keys(float (&scores)[kRows][kColumns], u32 k) const {
#pragma unroll 2
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      float4 keys[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) keys[j] = load_shared16(chunk_at(k, x() + 8 * j, chunk));
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float4 query = load_shared16(chunk_at(q_, y() + 4 * i, chunk));
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          float& score = scores[i][j];
          score = __fmaf_rn(query.x, keys[j].x, score);
          score = __fmaf_rn(query.y, keys[j].y, score);
          score = __fmaf_rn(query.z, keys[j].z, score);
          score = __fmaf_rn(query.w, keys[j].w, score);
        }
      }
    }
  }

  /// As above; the probabilities go to this warp's scratch.
  __device__ void update_row(const float (&scores)[kColumns], int i) {
    constexpr float kScale = kScoreScale<HeadDim>;
    float top = top_[i];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) top = fmaxf(top, scores[j]);
    top = lanes_max<8>(top);
    const float base = softmax_base(top, kScale);
    const float rescale = fast_exp2(__fsub_rn(__fmul_rn(top_[i], kScale), base));
    top_[i] = top;
    float sum = sum_[i] * rescale;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const float p = fast_exp2(__fmaf_rn(scores[j], kScale, -base));
      sum += p;
      store_shared4(p_ + ((y() + 4 * i) * kPitch + x() + 8 * j) * 4, __float_as_uint(p));
    }
    sum_[i] = sum;
#pragma unroll
    for (int c = 0; c < kValueChunks; ++c) {
      float4& o = output_[i][c];
      o = make_float4(o.x * rescale, o.y * rescale, o.z * rescale, o.w * rescale);
    }
  }

  __device__ void multiply_values(u32 v) {
#pragma unroll 1
    for (int key = 0; key < kKeys; key += 4) {
      float4 p[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        p[i] = load_shared16(p_ + ((y() + 4 * i) * kPitch + key) * 4);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int c = 0; c < kValueChunks; ++c) {
          const float4 value = load_shared16(chunk_at(v, key + e, x() + 8 * c));
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
            const float weight = e == 0 ? p[i].x : e == 1 ? p[i].y : e == 2 ? p[i].z : p[i].w;
            float4& o = output_[i][c];
            o.x = __fmaf_rn(weight, value.x, o.x);
            o.y = __fmaf_rn(weight, value.y, o.y);
            o.z = __fmaf_rn(weight, value.z, o.z);
            o.w = __fmaf_rn(weight, value.w, o.w);
          }
        }
      }
    }
  }

  u32 q_, p_;
  float4 output_[kRows][kValueChunks] = {};
  float top_[kRows], sum_[kRows] = {};
};
