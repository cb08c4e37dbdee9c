// How many processor cores this process may keep busy.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace laya::jit {

/// Numbers of the cores that the calling thread may be scheduled on, ascending; empty if the system
/// does not tell.
std::vector<int> scheduled_cores();

/// Cores that the process may be scheduled on, or fewer if a control group limits its time. At
/// least 1.
int available_cores();

/// Cores' worth of time that the control group named in `membership` (the text of
/// /proc/self/cgroup) and the groups above it allow, rounded up; 0 without a limit. `root` is where
/// the groups are mounted. Knows version 2 of control groups.
int cgroup_core_limit(const std::filesystem::path& root, std::string_view membership);

}  // namespace laya::jit
