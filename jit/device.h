// A device to run kernels on: memory, streams and graphs, the same for a GPU and the host's CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cache/result.h"
#include "jit/target.h"

namespace laya::jit {

class Device;

/// Device memory, freed on destruction; aligned to 256 bytes. Movable, empty by default.
/// Keeps its device alive. Must not be destroyed while queued work still uses it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<Device> device, void* data, size_t bytes, bool is_host);
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  void* data() const { return data_; }
  size_t size() const { return bytes_; }  ///< bytes
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void swap(Buffer& other) noexcept;

  std::shared_ptr<Device> device_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  bool is_host_ = false;
};

/// Work recorded once and replayed with one call. Holds no memory of its own: the buffers that its
/// kernels use must outlive it.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// An ordered queue of work. One thread at a time may use a stream. On the CPU every call has
/// finished when it returns.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() const = 0;
  /// Waits until all queued work is done; reports faults of kernels too (kDeviceError).
  virtual Result<void> synchronize() = 0;
  /// Between these two, work is recorded and not run. kUnavailable where the device has no graphs.
  virtual Result<void> begin_capture() = 0;
  virtual Result<std::unique_ptr<Graph>> end_capture() = 0;
  virtual Result<void> launch(Graph& graph) = 0;
  virtual Result<void> copy_to_device(void* device_dst, const void* host_src, size_t bytes) = 0;
  virtual Result<void> copy_to_host(void* host_dst, const void* device_src, size_t bytes) = 0;
  virtual Result<void> fill(void* device_dst, uint8_t value, size_t bytes) = 0;
  /// Milliseconds that `work` took on the device, by device events (CPU: by the clock).
  virtual Result<double> time_ms(const std::function<Result<void>()>& work) = 0;
};

/// Thread-safe.
class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;
  virtual const Target& target() const = 0;     ///< what to compile for
  virtual const std::string& name() const = 0;  ///< "NVIDIA H200", "AMD EPYC ..."
  virtual bool has_graphs() const = 0;
  virtual int processor_count() const = 0;  ///< multiprocessors, or worker threads of the CPU
  virtual Result<Buffer> allocate(size_t bytes) = 0;
  /// Host memory that the device copies from and to at full speed (pinned on a GPU). Kernels may
  /// read and write it at the same address; the host sees what they wrote after synchronize().
  virtual Result<Buffer> allocate_host(size_t bytes) = 0;
  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;

 protected:
  friend class Buffer;
  virtual void release(void* data, bool is_host) noexcept = 0;
};

/// GPU number `ordinal`. kUnavailable says what is missing (driver, GPU) and what to do about it.
/// Devices are opened once per process; every call for an ordinal returns the same one.
Result<std::shared_ptr<Device>> open_cuda_device(int ordinal);

/// The host's CPU with `threads` threads, the calling one included (0: one per core that this
/// process may use). jit/cpu_threads.h has more choices.
std::shared_ptr<Device> open_cpu_device(int threads);

}  // namespace laya::jit
