// The hidden layers of the decision: for each marker the scorer's, of which only the logit is
// wanted, and for each row the action head's. With LN(x) folded into w as moments.cuh says:
//
//   parts[marker, b] = sum over 16 units u of gelu(s * (x * w[u]^T) + bias[u]) * out_weight[u]
//   units[row, u]    = x * action_w[u, :D]^T + action_bias[u]
//
// All in fp32 but x itself. A warp computes two units of four rows and, with the same weights, of
// further rows; the order of additions depends on D alone.
//
//! entry  decision_hidden
//! launch dependent
//! param  T            word fp32 bf16 fp16        elements of x
//! param  D            int  32..16777216 step 32  columns of x, units of the scorer
//! param  UNITS        int  4..8192 step 4        units of the action head
//!
//! arg    x            ptr                        [n, D] T: R rows' first tokens, then markers
//! arg    x_low        ptr                        [n, D] T, null with fp32: residual.cuh
//! arg    moments      ptr                        [D / 32, N8, 2] fp32, N8: n up to a multiple of 8
//! arg    w            ptr                        [D, D] fp32
//! arg    bias         ptr                        [D] fp32
//! arg    out_weight   ptr                        [D] fp32
//! arg    action_w     ptr                        [UNITS, D + 4] fp32
//! arg    action_bias  ptr                        [UNITS] fp32
//! arg    parts        ptr                        [n - R, D / 16] fp32, written
//! arg    units        ptr                        [R, UNITS] fp32, written
//! arg    eps          f32                        added to the variance
//! arg    R            i32                        0 to n
//! arg    n            i32                        may be 0 (with an empty grid)
//
// Pointers are aligned to 16 bytes.
// Launch: grid.x = ceil(n / 4) * B with B = D / 16 + ceil(UNITS / 16), or fewer in multiples of B:
// best as many as run at once, two on a multiprocessor; block.x = 256. No dynamic shared memory.
#include "gelu.cuh"
#include "moments.cuh"

enum : int { kWarps = 8, kWarpUnits = 2, kBlockUnits = kWarps * kWarpUnits };
enum : int { kRows = 4 };  // of a block at a time
enum : int { kRowLanes = 32 / kRows, kUnitLanes = kRowLanes / kWarpUnits };
enum : int { kScorerBlocks = D / kBlockUnits };
enum : int { kActionBlocks = (UNITS + kBlockUnits - 1) / kBlockUnits };
enum : int { kBlocks = kScorerBlocks + kActionBlocks };
enum : int { kSteps = (D + 255) / 256 };      // a lane has 8 neighbouring columns out of every 256
enum : bool { kHoldsWeights = kSteps <= 6 };  // more than 96 registers of weights spill

/// A warp's units of a weight with `pitch` columns.
class UnitWeights {
 public:
  __device__ UnitWeights(const float* w, int pitch, int first_unit, int units) {
#pragma unroll
    for (int u = 0; u < kWarpUnits; ++u) {
      from_[u] = w + static_cast<long long>(min(first_unit + u, units - 1)) * pitch;
      if constexpr (kHoldsWeights) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) held_[u][step] = load(u, step);
      }
    }
  }
  __device__ Float8 get(int unit, int step) const {
    if constexpr (kHoldsWeights) return held_[unit][step];
    return load(unit, step);
  }

 private:
  __device__ Float8 load(int unit, int step) const {
    const int column = step * 256 + threadIdx.x % 32 * 8;
    return D % 256 == 0 || column < D ? load8(from_[unit] + column) : zero8();
  }

  const float* from_[kWarpUnits];
  Float8 held_[kWarpUnits][kHoldsWeights ? kSteps : 1];
};

/// Dot products of rows first.. (behind the last, that one again) with a warp's units: lane i gets
/// that of row i / kRowLanes and unit i / kUnitLanes % kWarpUnits.
__device__ inline float dot_products(const ResidualStream<T>& x, const UnitWeights& weights,
                                     int first, int end) {
  float sums[kRows * kWarpUnits] = {};
#pragma unroll(kHoldsWeights ? kSteps : 1)
  for (int step = 0; step < kSteps; ++step) {
    const int column = min(step * 256 + threadIdx.x % 32 * 8, D - 8);
    Float8 w[kWarpUnits];
#pragma unroll
    for (int u = 0; u < kWarpUnits; ++u) w[u] = weights.get(u, step);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const Float8 values = x.load8(static_cast<long long>(min(first + row, end - 1)) * D + column);
#pragma unroll
      for (int u = 0; u < kWarpUnits; ++u) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& sum = sums[row * kWarpUnits + u];
          sum = __fmaf_rn(values.v[i], w[u].v[i], sum);
        }
      }
    }
  }
  return distributed_sum(sums);
}

/// What a block does, either for the scorer or for the action head.
struct Share {
  bool is_scorer;
  int block;       ///< of those that do the same
  int first_unit;  ///< of this warp
  int begin, end;  ///< rows
};

__device__ inline Share share_of(int rows, int n) {
  const int block = blockIdx.x % kBlocks;
  const int first_unit = threadIdx.x / 32 * kWarpUnits;
  if (block < kScorerBlocks) return {true, block, block * kBlockUnits + first_unit, rows, n};
  const int action_block = block - kScorerBlocks;
  return {false, action_block, action_block * kBlockUnits + first_unit, 0, rows};
}

/// Sums over the block's warps of what lanes row * kRowLanes have: thread `row` gets the sum.
__device__ inline float block_sum(float part) {
  __shared__ float parts[kWarps][kRows];
  __syncthreads();  // the sums before have been read
  if (threadIdx.x % kRowLanes == 0) parts[threadIdx.x / 32][threadIdx.x % 32 / kRowLanes] = part;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += parts[i][threadIdx.x % kRows];
  return sum;
}

extern "C" __global__ void __launch_bounds__(kWarps * 32, 2)
    decision_hidden(T* x, T* x_low, const float* moments, const float* w, const float* bias,
                    const float* out_weight, const float* action_w, const float* action_bias,
                    float* parts, float* units, float eps, int R, int n) {
  const Share mine = share_of(R, n);
  const int lane = threadIdx.x % 32, unit = mine.first_unit + lane / kUnitLanes % kWarpUnits;
  const int all_units = mine.is_scorer ? D : UNITS;
  const UnitWeights weights(mine.is_scorer ? w : action_w, mine.is_scorer ? D : D + 4,
                            mine.first_unit, all_units);
  const bool exists = unit < all_units;  // all of the scorer's do
  const float offset = exists ? (mine.is_scorer ? bias : action_bias)[unit] : 0;
  const float factor = mine.is_scorer ? out_weight[unit] : 0;
  let_next_kernel_start();
  wait_for_kernels_before();
#pragma unroll 1
  for (int chunk = blockIdx.x / kBlocks; mine.begin + chunk * kRows < mine.end;
       chunk += gridDim.x / kBlocks) {
    const int first = mine.begin + chunk * kRows, row = first + lane / kRowLanes;
    RowMoments<T, D> row_moments;
    if (mine.is_scorer) row_moments.load(moments, min(row, mine.end - 1), n);
    const float sum = dot_products(ResidualStream<T>{x, x_low}, weights, first, mine.end);
    if (mine.is_scorer) {
      // scale() is for elements as they are stored, load8() has joined their parts.
      const float scale = row_moments.scale(moments, eps) * kResidualUnit<T>;
      float part = gelu(__fmaf_rn(sum, scale, offset)) * factor;
      part = block_sum(part + __shfl_xor_sync(kAllLanes, part, kUnitLanes));
      const int my_row = first + threadIdx.x;
      if (threadIdx.x < kRows && my_row < mine.end) {
        parts[static_cast<long long>(my_row - R) * kScorerBlocks + mine.block] = part;
      }
    } else if (exists && lane % kUnitLanes == 0 && row < mine.end) {
      units[static_cast<long long>(row) * UNITS + unit] = sum + offset;
    }
  }
}
