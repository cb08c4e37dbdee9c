// The CUDA driver as the rest of this folder sees it: typed calls that return Results, and owners
// of its handles. Knows nothing of our devices, streams and kernels. libcuda.so.1 is opened on
// first use; only driver.cpp sees cuda.h.
//
// Every call makes the context that it is given current and restores the one that was, so that a
// process that also uses CUDA otherwise is not disturbed. No call changes a setting of the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "cache/result.h"
#include "jit/kernel.h"

struct CUctx_st;
struct CUevent_st;
struct CUgraphExec_st;
struct CUkern_st;
struct CUlib_st;
struct CUstream_st;

namespace laya::jit::cuda {

/// Adds what was being done to an error of the driver: "allocating 4 bytes: <message>".
tl::unexpected<Error> while_doing(const std::string& what, Error error);

struct DriverTable;

struct DeviceInfo {
  std::string name;          ///< "NVIDIA H200"
  int capability = 0;        ///< compute capability x 10
  int processors = 0;        ///< multiprocessors
  int64_t block_shared = 0;  ///< most shared bytes that one block can have
};

/// A CUtensorMap.
struct alignas(64) TensorMapBytes {
  unsigned char bytes[128];
};

/// Destroys what the driver made. Does nothing in a process forked after the driver was opened,
/// where its handles mean nothing; ignores errors, such as those of a driver that is shutting down.
struct Destroy {
  void operator()(CUevent_st* event) const noexcept;
  void operator()(CUgraphExec_st* graph) const noexcept;
  void operator()(CUlib_st* library) const noexcept;
  void operator()(CUstream_st* stream) const noexcept;
};
using Event = std::unique_ptr<CUevent_st, Destroy>;
using GraphExec = std::unique_ptr<CUgraphExec_st, Destroy>;
using Library = std::unique_ptr<CUlib_st, Destroy>;
using StreamHandle = std::unique_ptr<CUstream_st, Destroy>;

/// Thread-safe. Errors are kDeviceError with the name of the call and the driver's name, number and
/// description of the error, unless noted.
class Driver {
 public:
  /// The driver, opened and initialised once per process. kUnavailable says what is missing, also
  /// in a process that was forked after it used the driver.
  static Result<const Driver*> get();

  /// The CUDA version that the driver supports: "13.0".
  std::string version() const;

  Result<int> device_count() const;
  Result<DeviceInfo> describe(int ordinal) const;
  /// The context that everyone in the process shares; kept until the process ends.
  Result<CUctx_st*> retain_context(int ordinal) const;

  Result<void*> allocate(CUctx_st* context, size_t bytes) const;
  Result<void*> allocate_host(CUctx_st* context, size_t bytes) const;
  void free(CUctx_st* context, void* data) const noexcept;
  void free_host(CUctx_st* context, void* data) const noexcept;
  /// Bytes of device memory that nobody uses; 0 if the driver does not tell.
  size_t free_bytes(CUctx_st* context) const noexcept;

  /// A stream that does not wait for the default stream.
  Result<StreamHandle> create_stream(CUctx_st* context) const;
  Result<void> synchronize(CUctx_st* context, CUstream_st* stream) const;
  Result<void> copy_to_device(CUctx_st* context, CUstream_st* stream, void* device_dst,
                              const void* host_src, size_t bytes) const;
  Result<void> copy_to_host(CUctx_st* context, CUstream_st* stream, void* host_dst,
                            const void* device_src, size_t bytes) const;
  Result<void> fill(CUctx_st* context, CUstream_st* stream, void* device_dst, uint8_t value,
                    size_t bytes) const;

  Result<void> begin_capture(CUctx_st* context, CUstream_st* stream) const;
  /// Ends the capture in any case.
  Result<GraphExec> end_capture(CUctx_st* context, CUstream_st* stream) const;
  Result<void> launch(CUctx_st* context, CUstream_st* stream, CUgraphExec_st* graph) const;

  Result<Event> create_event(CUctx_st* context) const;
  Result<void> record(CUctx_st* context, CUstream_st* stream, CUevent_st* event) const;
  Result<void> wait(CUctx_st* context, CUevent_st* event) const;
  /// Milliseconds between two events that have happened.
  Result<double> elapsed_ms(CUctx_st* context, CUevent_st* start, CUevent_st* end) const;

  /// Copies `cubin`, which must be whole: the driver trusts every offset in it.
  /// kUnavailable: a driver from before CUDA 12.0.
  Result<Library> load_library(const std::string& cubin) const;
  Result<CUkern_st*> find_kernel(CUlib_st* library, const std::string& entry) const;
  /// Puts the code into the context now and not on the first launch.
  Result<void> load_into(CUctx_st* context, CUkern_st* kernel) const;
  /// Lets the kernel ask for up to `bytes` of dynamic shared memory on one device.
  Result<void> allow_shared(int ordinal, CUkern_st* kernel, int64_t bytes) const;
  Result<int> occupancy(CUctx_st* context, CUkern_st* kernel, int threads,
                        size_t dynamic_shared_bytes) const;
  /// Writes the tensor map of a matrix of `rows` rows at device address `data` to `map`.
  Result<void> encode_map(CUctx_st* context, TensorMapBytes& map, const TensorMapShape& shape,
                          void* data, int64_t rows) const;
  /// Programmatic dependent launch, in graphs too, needs a driver for CUDA 12.3.
  bool has_dependent_launch() const;
  /// As launch(), but blocks may start while the kernel before it in the stream still runs.
  /// Precondition: has_dependent_launch() and compute capability 9.0.
  Result<void> launch_dependent(CUctx_st* context, CUstream_st* stream, CUkern_st* kernel,
                                const LaunchShape& shape, void* const* values) const;
  /// Takes no lock of ours and allocates nothing.
  Result<void> launch(CUctx_st* context, CUstream_st* stream, CUkern_st* kernel,
                      const LaunchShape& shape, void* const* values) const;

 private:
  explicit Driver(const DriverTable& table) : table_(table) {}
  static Result<const Driver*> open();

  const DriverTable& table_;
};

}  // namespace laya::jit::cuda
