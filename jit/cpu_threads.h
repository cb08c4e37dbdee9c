// Which threads run the grids of CPU kernels: workers of the device's own, or the application's.
#pragma once

#include <functional>
#include <memory>

namespace laya::jit {

class Device;

/// Runs work on an application's threads: calls `task(context, i)` once for each i in [0, count),
/// on any threads, and returns when all calls have returned. What tasks wrote must be visible then.
/// Must be safe to call from several threads at once, and come to an end even if every thread of
/// the application is inside such a call: best let the calling thread take tasks, too. Must not
/// throw.
using Executor =
    std::function<void(int count, void (*task)(void* context, int index), void* context)>;

/// The threads of a CPU device.
struct CpuThreads {
  /// Threads that work on a grid at once, the calling one included; 0: one per core that this
  /// process may use. The device never keeps more busy, but for callers beyond that number.
  int count = 0;
  /// Ties each worker of the device's own to one of the cores that the process may use, the first
  /// worker to the second core and so on. Helps where nothing else runs on these cores, else harms.
  /// Calling threads stay as they are.
  bool are_pinned = false;
  /// If set, there are no workers: each grid becomes at most `count` tasks of this executor.
  Executor executor = {};
};

/// The host's CPU. An executor must live as long as the device.
std::shared_ptr<Device> open_cpu_device(const CpuThreads& threads);

}  // namespace laya::jit
