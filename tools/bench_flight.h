// Who compiles, and how long it takes, when processes start together and want the same kernels.
#pragma once

#include <vector>

#include "jit/kernel_spec.h"
#include "jit/options.h"
#include "tools/bench.h"

namespace laya::tools {

struct FlightBench {
  jit::Options engine;  ///< but for the directory of the cache
  std::vector<jit::KernelSpec> specs;
  int processes;
  int repeat;  ///< rounds
};

/// One process and many, on an empty cache, a full one, and none, and with one of many killed in
/// the middle. In turns, so that whatever else the machine does meets all alike. kUnavailable: no
/// process could be started; kInternal: one did not get all kernels.
Result<std::vector<Figure>> bench_flight(const FlightBench& options);

}  // namespace laya::tools
