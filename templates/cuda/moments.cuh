// What a product that ends a branch of the residual stream says about its rows, and what a product
// that normalizes them makes of it. For each 32 neighbouring columns of a row (a group): their mean
// and the sum of their squared distances to it, so that a large mean does not cancel the variance.
// An array of moments is [D / 32, R8, 2], where R8 is the rows up to a multiple of 8: who finishes
// 8 rows of a group writes 64 bytes beside each other, whole sectors of memory.
//
// LayerNorm is linear but for the division by the deviation, which is the same for a whole row:
// once a weight has been multiplied by the norm's and its rows have a mean of 0
// (model/fold_norm.h), LN(x) * w^T is x * w^T times one number a row, its scale.
#pragma once

#include "dependent_launch.cuh"
#include "reduce.cuh"
#include "residual.cuh"

enum : int { kMomentColumns = 32 };  ///< of a group

/// R8 of an array of moments.
__device__ inline int moment_rows(int rows) {
  return (rows + 7) / 8 * 8;
}

/// Moments of groups that `Lanes` neighbouring lanes share, each with Count values of every group;
/// the lanes call it together. The groups go in step: one alone would be a chain of waits. The
/// order of additions is fixed by Lanes and Count.
template <int Lanes, int Groups, int Count>
__device__ inline void group_moments(const float (&x)[Groups][Count], float2 (&moments)[Groups]) {
  static_assert(Lanes * Count == kMomentColumns, "the lanes hold one group");
  float y[Groups][Count], sums[Groups];
  const auto sum = [&] {
#pragma unroll
    for (int half = Count / 2; half > 0; half /= 2) {
#pragma unroll
      for (int g = 0; g < Groups; ++g) {
#pragma unroll
        for (int i = 0; i < half; ++i) y[g][i] += y[g][i + half];
      }
    }
#pragma unroll
    for (int g = 0; g < Groups; ++g) sums[g] = y[g][0];
#pragma unroll
    for (int lanes = Lanes / 2; lanes > 0; lanes /= 2) {
#pragma unroll
      for (int g = 0; g < Groups; ++g) sums[g] += __shfl_xor_sync(kAllLanes, sums[g], lanes);
    }
  };
#pragma unroll
  for (int g = 0; g < Groups; ++g) {
#pragma unroll
    for (int i = 0; i < Count; ++i) y[g][i] = x[g][i];
  }
  sum();
#pragma unroll
  for (int g = 0; g < Groups; ++g) {
    moments[g].x = sums[g] / kMomentColumns;
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      const float distance = x[g][i] - moments[g].x;
      y[g][i] = distance * distance;
    }
  }
  sum();
#pragma unroll
  for (int g = 0; g < Groups; ++g) moments[g].y = sums[g];
}

/// The same for one group.
template <int Lanes, int Count>
__device__ inline float2 group_moments(const float (&x)[Count]) {
  float one[1][Count];
#pragma unroll
  for (int i = 0; i < Count; ++i) one[0][i] = x[i];
  float2 moments[1];
  group_moments<Lanes>(one, moments);
  return moments[0];
}

/// Of a row of D columns what one of 4 neighbouring lanes knows. Where
/// bulk copies fill the way to memory, a load waits for microseconds: so up to D = 1024 load() only
/// starts loads, and scale() needs them, unless MayWait. The lanes call both together, for the same
/// row.
template <class Elem, int D, bool MayWait = false>
class RowMoments {
 public:
  __device__ void load(const float* moments, int row, int rows) {
    if (D % kMomentColumns != 0 || moments == nullptr) return;
    const float2* const of_row = reinterpret_cast<const float2*>(moments) + row;
    const long long pitch = moment_rows(rows);
    const float2* mine = of_row + threadIdx.x % 4 * pitch;
#pragma unroll 8
    for (int i = 0; i < kMine; ++i, mine += 4 * pitch) {
      const bool exists = kGroups % 4 == 0 || i * 4 + threadIdx.x % 4 < kGroups;
      const float2 loaded = exists ? *mine : make_float2(0, 0);
      if constexpr (kIsHeld) {
        held_[i] = loaded;
      } else {
        if (i == 0) shift_ = of_row->x;
        if (exists) add(loaded);
      }
    }
  }

  /// 1 / sqrt(variance + eps) in units of the stored elements; 1 for rows that are normalized
  /// already: without moments.
  __device__ float scale(const float* moments, float eps) {
    if (D % kMomentColumns != 0 || moments == nullptr) return 1;
    if constexpr (kIsHeld) {
      shift_ = __shfl_sync(kAllLanes, held_[0].x, threadIdx.x % 32 / 4 * 4);
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        if (kGroups % 4 == 0 || i * 4 + threadIdx.x % 4 < kGroups) add(held_[i]);
      }
    }
    const float sum = lanes_sum<4>(distances_), squares = lanes_sum<4>(squares_);
    const float variance = (squares - sum * sum * (1.0f * kMomentColumns / kGroups)) * (1.0f / D);
    return rsqrtf(variance + eps) / kResidualUnit<Elem>;
  }

 private:
  enum : int { kGroups = D / kMomentColumns, kMine = (kGroups + 3) / 4 };
  /// In registers; else it is added while it arrives.
  enum : bool { kIsHeld = !MayWait && kMine <= 8 };

  /// Distances of means to one of them: what they have in common cancels nothing.
  __device__ void add(float2 group) {
    const float distance = group.x - shift_;
    distances_ += distance;
    squares_ += __fmaf_rn(distance * kMomentColumns, distance, group.y);
  }

  float2 held_[kIsHeld && kMine > 0 ? kMine : 1];
  float shift_, distances_ = 0, squares_ = 0;
};

/// Where a product finds the scales of its rows: `scales` [rows], as row_scales leaves them, else
/// `moments` of all `rows` rows; without either they are normalized already.
template <class Elem, int D>
struct RowNorms {
  const float* scales;
  const float* moments;
  float eps;
  int rows;
};

/// The scales of a tile's Rows rows from first_row on, in shared memory. All threads of the block
/// call it; rows behind the last get its scale.
template <int Rows, int Threads, class Elem, int D>
__device__ inline const float* tile_scales(const RowNorms<Elem, D>& norms, int first_row) {
  static_assert(Rows % 8 == 0 && Threads % 32 == 0, "whole warps take part");
  __shared__ float tile[Rows];
#pragma unroll 1
  for (int i = threadIdx.x / 4; i < Rows; i += Threads / 4) {
    const int row = min(first_row + i, norms.rows - 1);
    float scale;
    if (norms.scales != nullptr) {
      scale = norms.scales[row];
    } else {
      RowMoments<Elem, D> mine;
      mine.load(norms.moments, row, norms.rows);
      scale = mine.scale(norms.moments, norms.eps);
    }
    if (threadIdx.x % 4 == 0) tile[i] = scale;
  }
  __syncthreads();
  return tile;
}

/// The scales of the rows of which a thread of a warpgroup holds sums: of each 64 rows, where its
/// warp has 16, rows g and g + 8.
template <class Elem, int D, int Blocks>
class FragmentScales {
 public:
  __device__ explicit FragmentScales(const RowNorms<Elem, D>& norms) : norms_(norms) {}

  /// Before the product: starts to load. Waits for the kernels before, the first time. Rows behind
  /// the last get its scale.
  __device__ void load(int first_row) {
    if (is_first_) wait_for_kernels_before();
    is_first_ = false;
    first_row += threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const auto row = [&](int i) {
      return min(first_row + i / 2 * 64 + i % 2 * 8, norms_.rows - 1);
    };
    if (norms_.scales != nullptr) {
#pragma unroll
      for (int i = 0; i < 2 * Blocks; ++i) scales_[i] = norms_.scales[row(i)];
    } else {
#pragma unroll
      for (int i = 0; i < 2 * Blocks; ++i) {
        moments_[i] = {};
        moments_[i].load(norms_.moments, row(i), norms_.rows);
      }
    }
  }

  /// Once; best while the product is being computed.
  __device__ void finish() {
    if (norms_.scales != nullptr) return;
#pragma unroll
    for (int i = 0; i < 2 * Blocks; ++i) scales_[i] = moments_[i].scale(norms_.moments, norms_.eps);
  }
  __device__ float low(int block) const { return scales_[2 * block]; }
  __device__ float high(int block) const { return scales_[2 * block + 1]; }

 private:
  RowNorms<Elem, D> norms_;
  // Consumers of 128 rows take tiles in turn and wait for their turn anyway, and have no registers.
  RowMoments<Elem, D, (Blocks > 1)> moments_[2 * Blocks];
  float scales_[2 * Blocks];
  bool is_first_ = true;
};
