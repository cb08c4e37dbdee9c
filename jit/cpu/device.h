// The host's CPU as a device: plain memory and a pool of threads.
#pragma once

#include <string>

#include "jit/cpu/thread_pool.h"
#include "jit/device.h"

namespace laya::jit {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads);

  const Target& target() const override { return host_cpu_target(); }
  const std::string& name() const override { return name_; }
  bool has_graphs() const override { return false; }
  int processor_count() const override { return pool_.size(); }
  Result<Buffer> allocate(size_t bytes) override { return allocate_memory(bytes, false); }
  Result<Buffer> allocate_host(size_t bytes) override { return allocate_memory(bytes, true); }
  Result<std::unique_ptr<Stream>> create_stream() override;

  /// Runs the blocks of grids; thread-safe.
  ThreadPool& pool() { return pool_; }

 protected:
  void release(void* data, bool is_host) noexcept override;

 private:
  Result<Buffer> allocate_memory(size_t bytes, bool is_host);

  std::string name_;
  ThreadPool pool_;
};

}  // namespace laya::jit
