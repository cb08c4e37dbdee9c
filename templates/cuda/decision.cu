// What follows the hidden layers of the decision (decision_hidden): the logit of each option, and
// for each row the confidence features of their softmax and the action head's last layer:
//
//   logits[m]  = sum of parts[m] + bias[0]
//   actions[r] = w2 * gelu(units[r] + features * action_w[:, D:]^T) + b2
//
// All in fp32; a row is the work of a block.
//
//! entry  decision
//! launch dependent
//! param  D        int  32..16777216 step 32      units of the scorer, columns of action_w but 4
//! param  UNITS    int  4..8192 step 4            units of the action head
//! param  ACTIONS  int  1..1024
//!
//! arg    parts    ptr                            [offsets[R], D / 16] fp32
//! arg    bias     ptr                            [1] fp32
//! arg    offsets  ptr                            [R + 1] i32: row r has logits offsets[r]..
//! arg    units    ptr                            [R, UNITS] fp32
//! arg    action_w ptr                            [UNITS, D + 4] fp32
//! arg    w2       ptr                            [ACTIONS, UNITS] fp32
//! arg    b2       ptr                            [ACTIONS] fp32
//! arg    logits   ptr                            [offsets[R]] fp32, written
//! arg    actions  ptr                            [R, ACTIONS] fp32, written
//! arg    R        i32                            may be 0 (with an empty grid)
//
// A row has at most 255 logits. Pointers are aligned to 16 bytes, but for logits and actions, which
// may be pinned memory of the host.
// Launch: grid.x = R, block.x = 256. No dynamic shared memory.
#include "dependent_launch.cuh"
#include "gelu.cuh"
#include "reduce.cuh"

enum : int { kThreads = 256, kWarps = kThreads / 32 };
enum : int { kParts = D / 16 };
enum : int { kMostLogits = 255 };
enum : int { kThreadUnits = (UNITS + kThreads - 1) / kThreads };

struct Features {
  float top, gap, entropy, options;  // p1, p1 - p2, H / log k, k / 255
};

/// Features of softmax(logits) with k = max(2, count), computed by one warp; all lanes get them.
/// Without options every probability counts as 0.
__device__ inline Features confidence_features(const float* logits, int count) {
  const int lane = threadIdx.x % 32;
  float first = -kInfinity, second = -kInfinity;  // the two largest logits
  const auto merge = [&](float other_first, float other_second) {
    second = fmaxf(fminf(first, other_first), fmaxf(second, other_second));
    first = fmaxf(first, other_first);
  };
  for (int i = lane; i < count; i += 32) merge(logits[i], -kInfinity);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other_first = __shfl_xor_sync(kAllLanes, first, offset);
    merge(other_first, __shfl_xor_sync(kAllLanes, second, offset));
  }

  float sum = 0;
  for (int i = lane; i < count; i += 32) sum += expf(logits[i] - first);
  sum = lanes_sum<32>(sum);
  float entropy = 0;
  for (int i = lane; i < count; i += 32) {
    const float p = expf(logits[i] - first) / sum;
    entropy -= p * logf(fmaxf(p, 1e-9f));
  }
  entropy = lanes_sum<32>(entropy);

  const float k = max(2, count);
  const float p1 = count > 0 ? 1.0f / sum : 0, p2 = count > 1 ? expf(second - first) / sum : 0;
  return {p1, p1 - p2, entropy / logf(k), k / 255.0f};
}

extern "C" __global__ void __launch_bounds__(kThreads)
    decision(const float* parts, const float* bias, const int* offsets, const float* units,
             const float* action_w, const float* w2, const float* b2, float* logits, float* actions,
             int R) {
  __shared__ float row_logits[kMostLogits], hidden[UNITS];
  let_next_kernel_start();
  const int row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float4 feature_weights[kThreadUnits];  // no kernel writes weights: they come before the wait
#pragma unroll
  for (int i = 0; i < kThreadUnits; ++i) {
    const int unit = min(i * kThreads + static_cast<int>(threadIdx.x), UNITS - 1);
    feature_weights[i] =
        *reinterpret_cast<const float4*>(action_w + static_cast<long long>(unit) * (D + 4) + D);
  }
  wait_for_kernels_before();
  if (row >= R) return;
  float before[kThreadUnits];
#pragma unroll
  for (int i = 0; i < kThreadUnits; ++i) {
    const int unit = min(i * kThreads + static_cast<int>(threadIdx.x), UNITS - 1);
    before[i] = units[static_cast<long long>(row) * UNITS + unit];
  }
  const int first = offsets[row], count = min(offsets[row + 1] - first, kMostLogits);
  for (int i = warp; i < count; i += kWarps) {
    float sum = 0;
    for (int part = lane; part < kParts; part += 32) {
      sum += parts[static_cast<long long>(first + i) * kParts + part];
    }
    sum = lanes_sum<32>(sum) + bias[0];
    if (lane == 0) row_logits[i] = logits[first + i] = sum;
  }
  __syncthreads();
  const Features f = confidence_features(row_logits, count);
#pragma unroll
  for (int i = 0; i < kThreadUnits; ++i) {
    const int unit = i * kThreads + static_cast<int>(threadIdx.x);
    const float4 w = feature_weights[i];
    const float x = before[i] + w.x * f.top + w.y * f.gap + w.z * f.entropy + w.w * f.options;
    if (unit < UNITS) hidden[unit] = gelu(x);
  }
  __syncthreads();
  for (int action = warp; action < ACTIONS; action += kWarps) {
    const float* w = w2 + static_cast<long long>(action) * UNITS;
    float sum = 0;
    for (int unit = lane; unit < UNITS; unit += 32) sum = __fmaf_rn(w[unit], hidden[unit], sum);
    sum = lanes_sum<32>(sum);
    if (lane == 0) actions[static_cast<long long>(row) * ACTIONS + action] = sum + b2[action];
  }
}
