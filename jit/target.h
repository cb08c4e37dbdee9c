// The processor that a kernel is compiled for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/result.h"

namespace laya::jit {

enum class Backend : uint8_t { kCuda, kCpu };

/// "cuda", "cpu"
const char* to_string(Backend backend);

/// A value; two targets are the same processor exactly if they compare equal.
/// `name` is part of every key, so that code is only ever run on what it was compiled for:
/// - CUDA: "sm_80", "sm_90a". The suffix counts: sm_90a is not sm_90.
/// - CPU: "<triple arch>:<LLVM cpu name>:<sorted features, each with + >",
///   such as "x86_64:znver4:+avx,+avx2,+fma".
struct Target {
  Backend backend = Backend::kCpu;
  std::string name;

  bool operator==(const Target&) const = default;
};

/// Compute capability x 10 of a CUDA target: 90 for sm_90a. Precondition: backend is kCuda.
int compute_capability(const Target& target);

/// The CPU that this process runs on, with the features that the system lets it use.
/// Does not need LLVM. Computed once.
const Target& host_cpu_target();

/// Parts of a CPU target name.
struct CpuTargetParts {
  std::string arch;                   ///< "x86_64"
  std::string cpu;                    ///< LLVM's name: "znver4"; "x86-64" where unknown
  std::vector<std::string> features;  ///< "avx2", ...; sorted, enabled ones only
};
Result<CpuTargetParts> parse_cpu_target(const Target& target);

/// True if `feature` ("avx512f") is in the list of a CPU target.
bool has_cpu_feature(const Target& target, std::string_view feature);

/// Parses what people write: "sm_90a", "cpu" or "native" (both: host_cpu_target()), or a full CPU
/// target name. kBadInput lists the accepted forms.
Result<Target> parse_target(std::string_view text);

}  // namespace laya::jit
