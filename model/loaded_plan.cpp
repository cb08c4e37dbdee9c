#include "model/loaded_plan.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/parallel.h"

namespace laya::model {
namespace {

using KernelResult = Result<std::shared_ptr<const jit::Kernel>>;
using KernelMap = std::map<std::string, KernelResult>;

/// The driver loads one kernel at a time: a second thread does what is left to do beside that, but
/// with more of them each kernel takes half as long again.
constexpr int kLoaders = 2;

/// Kernels that are built and wait to be loaded, in the order in which they were finished.
class ReadyQueue {
 public:
  void push(const jit::BuildReport& report) {
    const std::lock_guard lock(mutex_);
    reports_.push_back(report);
    has_changed_.notify_one();
  }
  /// No more will come.
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    has_changed_.notify_all();
  }
  /// Waits for the next one. Nothing: the queue is closed and empty.
  std::optional<jit::BuildReport> pop() {
    std::unique_lock lock(mutex_);
    has_changed_.wait(lock, [&] { return is_closed_ || !reports_.empty(); });
    if (reports_.empty()) return std::nullopt;
    jit::BuildReport report = std::move(reports_.front());
    reports_.pop_front();
    return report;
  }

 private:
  std::mutex mutex_;
  std::condition_variable has_changed_;
  std::deque<jit::BuildReport> reports_;
  bool is_closed_ = false;
};

/// Builds all of `specs` and closes the queue, whatever happens.
void build_into(ReadyQueue& ready, const std::vector<jit::KernelSpec>& specs,
                jit::Engine& engine) noexcept {
  try {
    engine.warm(specs, [&](const jit::BuildReport& report) { ready.push(report); });
  } catch (const std::exception&) {
    // Out of memory or threads. What is missing is found missing.
  }
  ready.close();
}

KernelResult load(const jit::BuildReport& report, jit::Engine& engine) {
  LAYA_TRY(report.outcome);
  return engine.kernel(report.spec);
}

/// Kernels by the text of their specs. They are built on the engine's threads, and meanwhile
/// loaded.
KernelMap build_all(const std::vector<jit::KernelSpec>& specs, jit::Engine& engine) {
  ReadyQueue ready;
  const std::jthread builder([&] { build_into(ready, specs, engine); });
  KernelMap kernels;
  std::mutex mutex;
  parallel_for(kLoaders, kLoaders, [&](size_t) {
    while (const auto report = ready.pop()) {
      KernelResult kernel = load(*report, engine);
      const std::lock_guard lock(mutex);
      kernels.emplace(report->spec.to_string(), std::move(kernel));
    }
  });
  return kernels;
}

KernelResult find(const KernelMap& kernels, const jit::KernelSpec& spec) {
  const auto found = kernels.find(spec.to_string());
  if (found != kernels.end()) return found->second;
  return fail(ErrorKind::kInternal, spec.to_string() + ": not built, out of memory or threads");
}

}  // namespace

Result<std::unique_ptr<const LoadedPlan>> LoadedPlan::load(Plan plan, jit::Engine& engine) {
  std::unique_ptr<LoadedPlan> loaded(new LoadedPlan(std::move(plan)));
  const KernelMap kernels = build_all(loaded->plan_.specs(), engine);
  for (const Op* op : loaded->plan_.ops()) {
    for (const Variant& variant : op->variants) {
      LAYA_ASSIGN(loaded->kernels_[&variant], find(kernels, variant.spec));
    }
  }
  return loaded;
}

}  // namespace laya::model
