#include "model/loaded_plan.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "model/parallel.h"

namespace laya::model {
namespace {

using KernelResult = Result<std::shared_ptr<const jit::Kernel>>;

std::vector<std::optional<KernelResult>> build_all(const std::vector<jit::KernelSpec>& specs,
                                                   jit::Engine& engine) {
  std::vector<std::optional<KernelResult>> built(specs.size());
  parallel_for(specs.size(), engine.options().jobs,
               [&](size_t i) { built[i] = engine.kernel(specs[i]); });
  return built;
}

}  // namespace

Result<std::unique_ptr<const LoadedPlan>> LoadedPlan::load(Plan plan, jit::Engine& engine) {
  std::unique_ptr<LoadedPlan> loaded(new LoadedPlan(std::move(plan)));
  const auto specs = loaded->plan_.specs();
  const auto built = build_all(specs, engine);
  for (const auto& result : built) {
    if (!*result) return tl::make_unexpected(result->error());
  }
  for (const Op* op : loaded->plan_.ops()) {
    for (const Variant& variant : op->variants) {
      const auto spec = std::find(specs.begin(), specs.end(), variant.spec);
      loaded->kernels_[&variant] = **built[static_cast<size_t>(spec - specs.begin())];
    }
  }
  return loaded;
}

}  // namespace laya::model
