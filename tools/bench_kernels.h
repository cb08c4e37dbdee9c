// What `laya bench kernels` measures, and the backends that can measure it.
#pragma once

#include <string>
#include <vector>

#include "cache/result.h"
#include "model/dtype.h"
#include "tools/bench.h"
#include "tools/onednn.h"

namespace laya::tools {

struct KernelBench {
  std::vector<Product> products;
  int threads = 0;     ///< of the CPU; 0: one per core
  int rounds = 9;      ///< each measures every implementation in turn
  std::string onednn;  ///< library file; empty: the installed one
};

/// Our products beside oneDNN's and OpenBLAS's on the same threads: one figure per product and
/// reference, in GFLOP/s (of one thread: of the time that it computes), and for each kind of
/// product the geometric mean and the least of the ratios. A library that is missing is noted on
/// stderr, and its figures have no reference. kInternal: our result and the reference's differ by
/// more than rounding.
Result<std::vector<Figure>> bench_cpu_kernels(const KernelBench& bench);

}  // namespace laya::tools
