#include "model/loaded_plan.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace laya::model {
namespace {

using KernelPtr = std::shared_ptr<const jit::Kernel>;

/// What is built and waits to be loaded, in the order in which it was finished.
class ReadyQueue {
 public:
  void push(const jit::BuildReport& report) {
    {
      const std::lock_guard lock(mutex_);
      reports_.push_back(report);
    }
    is_filled_.notify_one();
  }
  jit::BuildReport pop() {
    std::unique_lock lock(mutex_);
    is_filled_.wait(lock, [&] { return !reports_.empty(); });
    jit::BuildReport report = std::move(reports_.front());
    reports_.pop_front();
    return report;
  }

 private:
  std::mutex mutex_;
  std::condition_variable is_filled_;
  std::deque<jit::BuildReport> reports_;
};

/// All of `specs`, or the error of the first that fails. They are built on the engine's threads and
/// meanwhile loaded on this one: the driver loads one kernel at a time, and each takes half as long
/// again while other threads wait for their turn.
Result<std::vector<std::pair<jit::KernelSpec, KernelPtr>>> build_all(
    const std::vector<jit::KernelSpec>& specs, jit::Engine& engine) {
  ReadyQueue ready;
  const std::jthread builder(
      [&] { engine.warm(specs, [&](const jit::BuildReport& report) { ready.push(report); }); });
  std::vector<std::pair<jit::KernelSpec, KernelPtr>> kernels;
  for (size_t i = 0; i < specs.size(); ++i) {
    const jit::BuildReport report = ready.pop();
    LAYA_TRY(report.outcome);
    LAYA_ASSIGN(auto kernel, engine.kernel(report.spec));
    kernels.emplace_back(report.spec, std::move(kernel));
  }
  return kernels;
}

}  // namespace

Result<std::unique_ptr<const LoadedPlan>> LoadedPlan::load(Plan plan, jit::Engine& engine) {
  std::unique_ptr<LoadedPlan> loaded(new LoadedPlan(std::move(plan)));
  LAYA_ASSIGN(const auto kernels, build_all(loaded->plan_.specs(), engine));
  for (const Op* op : loaded->plan_.ops()) {
    for (const Variant& variant : op->variants) {
      for (const auto& [spec, kernel] : kernels) {
        if (spec == variant.spec) loaded->kernels_[&variant] = kernel;
      }
    }
  }
  return loaded;
}

}  // namespace laya::model
