#include "jit/target.h"

#include <algorithm>

namespace laya::jit {
namespace {

bool is_cuda_name(std::string_view name) {
  if (!name.starts_with("sm_")) return false;
  name.remove_prefix(3);
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const std::string_view suffix = name.substr(digits);
  return digits >= 2 && digits <= 3 && (suffix.empty() || suffix == "a" || suffix == "f");
}

}  // namespace

const char* to_string(Backend backend) {
  return backend == Backend::kCuda ? "cuda" : "cpu";
}

int compute_capability(const Target& target) {
  int value = 0;
  for (const char c : target.name) {
    if (c >= '0' && c <= '9') value = value * 10 + (c - '0');
  }
  return value;
}

Result<Target> parse_target(std::string_view text) {
  if (text == "cpu" || text == "native") return host_cpu_target();
  if (is_cuda_name(text)) return Target{Backend::kCuda, std::string(text)};
  Target target{Backend::kCpu, std::string(text)};
  if (parse_cpu_target(target)) return target;
  return fail(ErrorKind::kBadInput, "target '" + std::string(text) +
                                        "' is none of: sm_80, sm_90a, ... (a CUDA architecture); "
                                        "cpu or native (this machine's CPU); or a CPU written "
                                        "as x86_64:znver4:+avx,+avx2");
}

}  // namespace laya::jit
