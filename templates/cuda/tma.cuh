// Hopper's bulk tensor copies and what they need: tensor maps, mbarriers, clusters and the
// register budget of a warpgroup. For sm_90a.
//
// A copy is started by one thread, runs by itself, and reports the bytes that arrived to an
// mbarrier in the shared memory it writes to. A barrier's phase ends when all expected arrivals and
// bytes are there; waiting is for the phase of a given parity, 0 for the first.
//
// Shared memory is addressed by its 32-bit address in the block's own window. The same number names
// the same place in another block of the cluster once remote_address() has added the block.
#pragma once

#include "types.cuh"

/// A CUtensorMap, passed by value as `const __grid_constant__ TensorMap`. Boxes of 128 bytes a row,
/// 128-byte swizzle: 16-byte chunk c of row r lies at chunk c ^ (r % 8) of row r,
/// for a box that begins at a multiple of 1,024 bytes.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

__device__ inline u32 shared_window_address(const void* p) {
  u32 address = static_cast<u32>(__cvta_generic_to_shared(p));
  asm volatile("" : "+r"(address));  // else it is computed again wherever it is used
  return address;
}

// ---- mbarriers ----

__device__ inline void init_barrier(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// After the last init_barrier(), before the __syncthreads() or sync_cluster() that lets the block
/// or the cluster use the barriers.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives and adds `bytes` to what the phase waits for.
__device__ inline void expect_bytes(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ inline void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives when all cp.async copies that this thread has started have arrived. They write as
/// ordinary stores do: who waits calls fence_async_proxy() before tensor cores read them.
__device__ inline void arrive_when_copied(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// Arrives at a barrier of any block of the cluster; `barrier` is a remote_address(). Says that
/// something has been read, by tensor cores or by ordinary loads before a fence_async_proxy(), and
/// publishes no writes: a release at cluster scope would cost a fence of the whole GPU.
__device__ inline void arrive_remote(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ inline bool phase_ended(u32 barrier, u32 parity) {
  u32 ended;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}

/// Waits until the phase of `parity` has ended. SpinLimit 0: for ever. Else the kernel traps after
/// so many tries, each of which may itself sleep for microseconds: for debugging.
template <int SpinLimit>
__device__ inline void wait_phase(u32 barrier, u32 parity) {
  if constexpr (SpinLimit == 0) {
    while (!phase_ended(barrier, parity)) {
    }
  } else {
    int tries = 0;
    while (!phase_ended(barrier, parity)) {
      if (++tries > SpinLimit) __trap();
    }
  }
}

// ---- copies ----

/// Starts the copy of the box whose first element is (row, column) to `to`; `barrier` counts the
/// bytes of the whole box, including those outside the matrix, which are written as zeros.
__device__ inline void load_box(u32 to, const TensorMap& map, int row, int column, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

/// The same into block `block` of the cluster, with that block's barrier: `to` and `barrier` are
/// addresses of this block, and name the same places there.
__device__ inline void load_box_to_block(u32 to, const TensorMap& map, int row, int column,
                                         u32 barrier, u32 block) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(static_cast<u16>(1 << block))
      : "memory");
}

/// The same of a map by_thread, from the first row of group `group` on.
__device__ inline void load_thread_box(u32 to, const TensorMap& map, int group, int column,
                                       u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %3, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(column), "r"(0), "r"(group), "r"(barrier)
      : "memory");
}

/// The same into every block of the cluster whose bit is set in `blocks`, at the same address, each
/// with its own barrier at the same address.
__device__ inline void load_thread_box_to_cluster(u32 to, const TensorMap& map, int group,
                                                  int column, u32 barrier, u16 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %3, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(column), "r"(0), "r"(group), "r"(barrier), "h"(blocks)
      : "memory");
}

__device__ inline void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Puts this thread's ordinary reads and writes of shared memory before what tensor cores and
/// copies do to it; a barrier with the thread that starts those must follow.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- clusters ----

__device__ inline u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline u32 remote_address(u32 address, u32 rank) {
  u32 result;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
  return result;
}

/// Writes 4 values to 16 aligned bytes of any block of the cluster and reports them to a barrier of
/// that block; both are a remote_address(). Who waits for the barrier sees them.
__device__ inline void send(u32 to, const float* x, u32 barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
      "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(barrier)
      : "memory");
}

__device__ inline void load4_shared(u32 from, float* x) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "r"(from)
               : "memory");
}

/// 16-byte chunk `chunk` of a row of a box, with the swizzle of a TensorMap.
__device__ inline uint4 load_chunk(u32 box, int row, int chunk) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(box + row * 128 + (chunk ^ row % 8) * 16)
               : "memory");
  return x;
}

/// A barrier of all threads of the cluster. Publishes nothing but what publish_barriers() does.
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}

// ---- roles of warps ----

/// A value that is the same for all threads of a warp, and now known to be, so that what follows
/// from it is computed once for the warp: descriptors of operands and boxes must be in uniform
/// registers, and products may stand in branches.
__device__ inline int uniform(int x) {
  return __shfl_sync(~0u, x, 0);
}

__device__ inline int warp_index() {
  return uniform(threadIdx.x / 32);
}

/// Gives registers of the calling warpgroup back to the block, or waits for that many; the block
/// must have been launched with a fixed number, and every thread of the warpgroup calls this.
template <int Registers>
__device__ inline void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
