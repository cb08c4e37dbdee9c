#include "model/loaded_plan.h"

#include <condition_variable>
#include <deque>
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
  explicit ReadyQueue(size_t expected) : expected_(expected) {}

  void push(const jit::BuildReport& report) {
    {
      const std::lock_guard lock(mutex_);
      reports_.push_back(report);
    }
    is_filled_.notify_one();
  }
  /// Nothing: all that are expected have been taken.
  std::optional<jit::BuildReport> pop() {
    std::unique_lock lock(mutex_);
    if (expected_ == 0) return std::nullopt;
    --expected_;
    is_filled_.wait(lock, [&] { return !reports_.empty(); });
    jit::BuildReport report = std::move(reports_.front());
    reports_.pop_front();
    return report;
  }

 private:
  std::mutex mutex_;
  std::condition_variable is_filled_;
  std::deque<jit::BuildReport> reports_;
  size_t expected_;
};

KernelResult load(const jit::BuildReport& report, jit::Engine& engine) {
  LAYA_TRY(report.outcome);
  return engine.kernel(report.spec);
}

/// All of `specs`, by their text. They are built on the engine's threads, and meanwhile loaded.
KernelMap build_all(const std::vector<jit::KernelSpec>& specs, jit::Engine& engine) {
  ReadyQueue ready(specs.size());
  const std::jthread builder(
      [&] { engine.warm(specs, [&](const jit::BuildReport& report) { ready.push(report); }); });
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

}  // namespace

Result<std::unique_ptr<const LoadedPlan>> LoadedPlan::load(Plan plan, jit::Engine& engine) {
  std::unique_ptr<LoadedPlan> loaded(new LoadedPlan(std::move(plan)));
  const KernelMap kernels = build_all(loaded->plan_.specs(), engine);
  for (const Op* op : loaded->plan_.ops()) {
    for (const Variant& variant : op->variants) {
      LAYA_ASSIGN(loaded->kernels_[&variant], kernels.at(variant.spec.to_string()));
    }
  }
  return loaded;
}

}  // namespace laya::model
