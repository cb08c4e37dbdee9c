// A plan whose kernels are ready to launch.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "cache/result.h"
#include "jit/engine.h"
#include "jit/kernel.h"
#include "model/plan.h"

namespace laya::model {

/// Immutable and thread-safe.
class LoadedPlan {
 public:
  /// Builds or fetches every kernel of the plan, several at once (Options::jobs of the engine), in
  /// the plan's order, and loads them. The error of the first op that has a failing one is
  /// returned.
  static Result<std::unique_ptr<const LoadedPlan>> load(Plan plan, jit::Engine& engine);

  const Plan& plan() const { return plan_; }

  /// Queues the variant of `op` for `rows` rows, with a grid for `rows` rows.
  /// Precondition: `op` is a member of plan().
  template <class... Args>
  Result<void> launch(jit::Stream& stream, const Op& op, int64_t rows, const Args&... args) const {
    const Variant& variant = op.choose(rows);
    return kernel(variant).launch(stream, variant.rule.shape(rows), args...);
  }
  /// The same for attention, whose variant depends on the tokens and whose grid on the tiles.
  template <class... Args>
  Result<void> launch_tiles(jit::Stream& stream, const Op& op, int64_t tokens, int64_t tiles,
                            const Args&... args) const {
    const Variant& variant = op.choose(tokens);
    const int64_t queries = tiles * variant.rule.rows_per_block;
    return kernel(variant).launch(stream, variant.rule.shape(queries), args...);
  }

 private:
  explicit LoadedPlan(Plan plan) : plan_(std::move(plan)) {}

  const jit::Kernel& kernel(const Variant& variant) const { return *kernels_.at(&variant); }

  Plan plan_;
  // By the address of a variant in plan_: found without comparing specs.
  std::unordered_map<const Variant*, std::shared_ptr<const jit::Kernel>> kernels_;
};

}  // namespace laya::model
