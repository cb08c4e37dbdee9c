// The functions of the CUDA driver that we use: name in cuda.h, symbol in libcuda.so.1.
// The two differ where cuda.h renames a function to its latest version; the symbol here is the
// oldest one with the arguments that we use, so that we need no newer driver than we must.
#pragma once

#define LAYA_CUDA_REQUIRED(X)                                                                   \
  X(cuInit, "cuInit")                                                                           \
  X(cuDriverGetVersion, "cuDriverGetVersion")                                                   \
  X(cuGetErrorName, "cuGetErrorName")                                                           \
  X(cuGetErrorString, "cuGetErrorString")                                                       \
  X(cuDeviceGetCount, "cuDeviceGetCount")                                                       \
  X(cuDeviceGet, "cuDeviceGet")                                                                 \
  X(cuDeviceGetName, "cuDeviceGetName")                                                         \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute")                                               \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                                       \
  X(cuCtxGetCurrent, "cuCtxGetCurrent")                                                         \
  X(cuCtxSetCurrent, "cuCtxSetCurrent")                                                         \
  X(cuMemAlloc, "cuMemAlloc_v2")                                                                \
  X(cuMemFree, "cuMemFree_v2")                                                                  \
  X(cuMemHostAlloc, "cuMemHostAlloc")                                                           \
  X(cuMemFreeHost, "cuMemFreeHost")                                                             \
  X(cuMemGetInfo, "cuMemGetInfo_v2")                                                            \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2")                                                  \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2")                                                  \
  X(cuMemsetD8Async, "cuMemsetD8Async")                                                         \
  X(cuStreamCreate, "cuStreamCreate")                                                           \
  X(cuStreamDestroy, "cuStreamDestroy_v2")                                                      \
  X(cuStreamSynchronize, "cuStreamSynchronize")                                                 \
  X(cuStreamBeginCapture, "cuStreamBeginCapture_v2")                                            \
  X(cuStreamEndCapture, "cuStreamEndCapture")                                                   \
  X(cuGraphInstantiate, "cuGraphInstantiateWithFlags")                                          \
  X(cuGraphUpload, "cuGraphUpload")                                                             \
  X(cuGraphLaunch, "cuGraphLaunch")                                                             \
  X(cuGraphDestroy, "cuGraphDestroy")                                                           \
  X(cuGraphExecDestroy, "cuGraphExecDestroy")                                                   \
  X(cuEventCreate, "cuEventCreate")                                                             \
  X(cuEventDestroy, "cuEventDestroy_v2")                                                        \
  X(cuEventRecord, "cuEventRecord")                                                             \
  X(cuEventSynchronize, "cuEventSynchronize")                                                   \
  X(cuEventElapsedTime, "cuEventElapsedTime")                                                   \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor") \
  X(cuLaunchKernel, "cuLaunchKernel")

// Since CUDA 12.0 or, cuLaunchKernelEx, 11.8. All or none of them are there.
#define LAYA_CUDA_OPTIONAL(X)                         \
  X(cuLibraryLoadData, "cuLibraryLoadData")           \
  X(cuLibraryUnload, "cuLibraryUnload")               \
  X(cuLibraryGetKernel, "cuLibraryGetKernel")         \
  X(cuKernelGetFunction, "cuKernelGetFunction")       \
  X(cuKernelSetAttribute, "cuKernelSetAttribute")     \
  X(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled") \
  X(cuLaunchKernelEx, "cuLaunchKernelEx")
