// The host's CPU as a device: plain memory and a pool of threads.
#pragma once

#include <string>

#include "jit/cpu/thread_pool.h"
#include "jit/cpu_threads.h"
#include "jit/device.h"

namespace laya::jit {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuThreads& threads);

  const Target& target() const override { return host_cpu_target(); }
  const std::string& name() const override { return name_; }
  bool has_graphs() const override { return false; }
  int processor_count() const override { return executor_ ? tasks_ : pool_.size(); }
  Result<Buffer> allocate(size_t bytes) override { return allocate_memory(bytes, false); }
  Result<Buffer> allocate_host(size_t bytes) override { return allocate_memory(bytes, true); }
  Result<std::unique_ptr<Stream>> create_stream() override;

  /// Runs each of the blocks [0, count) once, see ThreadPool::run(); thread-safe.
  void run(uint64_t count, ThreadPool::BlockFn fn, const void* context);

 protected:
  void release(void* data, bool is_host) noexcept override;

 private:
  Result<Buffer> allocate_memory(size_t bytes, bool is_host);

  std::string name_;
  const Executor executor_;  ///< empty: the pool's workers
  const int tasks_;          ///< of a grid, with an executor
  ThreadPool pool_;
};

}  // namespace laya::jit
