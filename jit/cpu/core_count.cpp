#include "jit/cpu/core_count.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace laya::jit {
namespace {

/// More than any machine has; the kernel refuses a set smaller than its own.
constexpr int kMaxCores = 8192;

std::string read_text(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// Of one group; "max 100000" and a missing file mean: no limit.
int limit_of(const std::filesystem::path& group) {
  std::istringstream text(read_text(group / "cpu.max"));
  int64_t quota = 0, period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::clamp<int64_t>((quota + period - 1) / period, 1, kMaxCores));
}

}  // namespace

int cgroup_core_limit(const std::filesystem::path& root, std::string_view membership) {
  const size_t at = membership.find("0::/");
  if (at == std::string_view::npos) return 0;
  const std::string_view path = membership.substr(at + 4);
  std::filesystem::path group = root / path.substr(0, path.find('\n'));
  int limit = 0;
  for (;; group = group.parent_path()) {
    const int cores = limit_of(group);
    if (cores > 0) limit = limit == 0 ? cores : std::min(limit, cores);
    if (group == root || !group.has_relative_path()) return limit;
  }
}

std::vector<int> scheduled_cores() {
  std::vector<int> cores;
  cpu_set_t* set = CPU_ALLOC(kMaxCores);
  if (set == nullptr) return cores;
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCores);
  const bool is_known = sched_getaffinity(0, bytes, set) == 0;
  for (int core = 0; is_known && core < kMaxCores; ++core) {
    if (CPU_ISSET_S(static_cast<size_t>(core), bytes, set)) cores.push_back(core);
  }
  CPU_FREE(set);
  return cores;
}

int available_cores() {
  const int limit = cgroup_core_limit("/sys/fs/cgroup", read_text("/proc/self/cgroup"));
  const int scheduled = std::max<int>(1, static_cast<int>(scheduled_cores().size()));
  return limit == 0 ? scheduled : std::min(scheduled, limit);
}

}  // namespace laya::jit
