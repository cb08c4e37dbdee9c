#include "jit/cuda/architecture.h"

namespace laya::jit::cuda {

Target target_of(int capability) {
  constexpr int kFirstWithSuffix = 90;
  return {Backend::kCuda,
          "sm_" + std::to_string(capability) + (capability >= kFirstWithSuffix ? "a" : "")};
}

bool runs_on(const Target& target, int capability) {
  const int wanted = compute_capability(target);
  // Suffix a: this GPU alone. None or f: the same generation, this revision or a later one.
  if (target.name.ends_with('a')) return capability == wanted;
  return capability / 10 == wanted / 10 && capability >= wanted;
}

}  // namespace laya::jit::cuda
