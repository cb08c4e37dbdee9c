// The action head of each row: confidence features of its options' softmax, then a two-layer
// network on [CLS vector, features]. All in fp32; a row is the work of a cluster of blocks, which
// share the hidden units: one multiprocessor alone would be long about reading w1.
//
//! entry  action_head
//! launch dependent
//! param  X       word fp32 bf16 fp16             elements of cls
//! param  D       int  8..16777216 step 8         columns of cls
//! param  UNITS   int  4..8192 step 4             hidden units
//! param  ACTIONS int  1..1024
//! param  BLOCKS  int  1..8                       tile: blocks of a row; 1 before 9.0
//!
//! arg    cls     ptr                             [R, D] X: rows of a residual stream, residual.cuh
//! arg    cls_low ptr                             [R, D] X, null with fp32
//! arg    logits  ptr                             [n] fp32, of all options, row after row
//! arg    offsets ptr                             [R + 1] i32: row r has logits offsets[r]..
//! arg    w1      ptr                             [UNITS, D + 4] fp32
//! arg    b1      ptr                             [UNITS] fp32
//! arg    w2      ptr                             [ACTIONS, UNITS] fp32
//! arg    b2      ptr                             [ACTIONS] fp32
//! arg    out     ptr                             [R, ACTIONS] fp32, written
//! arg    R       i32                             may be 0 (with an empty grid)
//
// Pointers to rows are aligned to 16 bytes.
// Launch: grid.x = R * BLOCKS, block.x = 512. No dynamic shared memory.
#include "dependent_launch.cuh"
#include "dot.cuh"
#include "gelu.cuh"

constexpr int kThreads = 512, kWarps = kThreads / 32;

#if __CUDA_ARCH__ >= 900
#define LAYA_CLUSTER __cluster_dims__(BLOCKS, 1, 1)
#else
#define LAYA_CLUSTER
#endif

/// Stores to a shared variable of the cluster's first block.
__device__ inline void store_in_first_block(float* variable, float value) {
  if constexpr (BLOCKS == 1) {
    *variable = value;
  } else {
    const u32 own = static_cast<u32>(__cvta_generic_to_shared(variable));
    asm volatile(
        "{\n.reg .b32 first;\n"
        "mapa.shared::cluster.u32 first, %0, 0;\n"
        "st.shared::cluster.f32 [first], %1;\n}" ::"r"(own),
        "f"(value)
        : "memory");
  }
}

/// A barrier of all threads of the row's blocks that publishes their stores.
__device__ inline void sync_row() {
  if constexpr (BLOCKS == 1) {
    __syncthreads();
  } else {
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
  }
}

__device__ inline void prefetch_L2(const float* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

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

extern "C" __global__ void LAYA_CLUSTER __launch_bounds__(kThreads)
    action_head(X* cls, X* cls_low, const float* logits, const int* offsets, const float* w1,
                const float* b1, const float* w2, const float* b2, float* out, int R) {
  __shared__ __align__(16) float hidden[UNITS];
  let_next_kernel_start();
  const int row = blockIdx.x / BLOCKS, rank = blockIdx.x % BLOCKS;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= R) return;  // the whole cluster
  // Weights, which no kernel writes, come on their way before everything else.
  for (int unit = rank * kWarps + warp; unit < UNITS; unit += BLOCKS * kWarps) {
    const float* weights = w1 + static_cast<long long>(unit) * (D + 4);
    for (int i = lane * 32; i < D; i += 32 * 32) prefetch_L2(weights + i);
  }
  wait_for_kernels_before();
  const ResidualStream<X> stream{cls, cls_low};
  const Features f = confidence_features(logits + offsets[row], offsets[row + 1] - offsets[row]);

  if constexpr (BLOCKS > 1) sync_row();  // the first block has started
  for (int unit = rank * kWarps + warp; unit < UNITS; unit += BLOCKS * kWarps) {
    const float* weights = w1 + static_cast<long long>(unit) * (D + 4);
    const float sum = warp_dot<D>(stream, static_cast<long long>(row) * D, weights);
    if (lane == 0) {
      const float4 w = *reinterpret_cast<const float4*>(weights + D);
      const float x = sum + w.x * f.top + w.y * f.gap + w.z * f.entropy + w.w * f.options;
      store_in_first_block(&hidden[unit], gelu(x + b1[unit]));
    }
  }
  sync_row();
  if (rank > 0) return;
  for (int action = warp; action < ACTIONS; action += kWarps) {
    const float sum = warp_dot<UNITS>(w2 + static_cast<long long>(action) * UNITS, hidden);
    if (lane == 0) out[static_cast<long long>(row) * ACTIONS + action] = sum + b2[action];
  }
}
