// What the fault tests have done, as a table that is printed after the last test: so that what the
// documents say about faults is what a run has counted.
#pragma once

#include <cstdint>
#include <string>

namespace laya::cache::test {

/// One kind of fault. The counts are of what was seen, not of what was expected.
struct FaultRow {
  std::string kind;      ///< "A" to "Q", or several: how caches fail in the field
  std::string injected;  ///< what was done
  int64_t times = 0;
  int64_t wrong = 0;             ///< answers that were not what had been stored
  int64_t failed_launches = -1;  ///< -1: the test launches nothing
  int64_t lost = 0;              ///< records that were stored before and are gone
  int64_t evicted = 0;           ///< and those that were given up for room, not counted as lost
};

/// The row for this, made at the first call. For the thread that runs the tests.
FaultRow& fault_row(const std::string& kind, const std::string& injected);

}  // namespace laya::cache::test
