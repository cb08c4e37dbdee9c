// Programmatic dependent launch: kernels whose blocks start while the kernels before them in the
// stream still run, so that launching and what needs no result of theirs costs no time of its own.
// No effect before compute capability 9.0 and where the kernel was launched in the ordinary way.
//
// The kernel before has ended means: so have all before that, since each waits before it ends.
#pragma once

/// Waits until the kernels before this one have ended and their writes are visible. Before it only
/// what no kernel writes (weights, index arrays from the host) may be read, and nothing written.
/// Every block calls it, also one without work.
__device__ inline void wait_for_kernels_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next kernel of the stream start as soon as there is room for its blocks; it waits for
/// this one's end by itself. A kernel that reads much calls it once what it reads first is on its
/// way: where multiprocessors are free, the one after the next would start, too, and so on, and all
/// of them would fetch their weights before this one has what it needs.
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
