// From expanded source to machine code. One implementation per backend; each opens the compiler's
// library on the first compile, so that a process that finds everything in the cache never maps it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/result.h"
#include "jit/target.h"

namespace laya::jit {

struct Header {
  std::string name;  ///< as the source writes it between quotes or brackets
  std::string text;
};

struct CompileRequest {
  std::string name;  ///< file name for messages, such as "gemm.cu"
  std::string source;
  std::vector<Header> headers;  ///< every header that the source can reach; nothing else is visible
  std::string entry;            ///< function that must exist in the result
  Target target;
  std::vector<std::string> options;  ///< from Compiler::options(), unchanged
};

/// What a kernel needs to run. Zero where the backend does not tell.
struct KernelAttributes {
  int registers = 0;  ///< per thread
  int64_t static_shared_bytes = 0;
  int64_t local_bytes = 0;  ///< stack frame per thread: spills and indexed arrays
  int64_t constant_bytes = 0;
  int max_threads = 0;  ///< largest block the kernel may be launched with; 0: no limit known
};

struct CompileOutput {
  std::string object;  ///< a cubin, or an ELF relocatable object
  std::string log;     ///< what the compiler said, also on success
  KernelAttributes attributes;
};

/// Thread-safe: compile() may run on many threads at once.
class Compiler {
 public:
  virtual ~Compiler() = default;

  virtual Backend backend() const = 0;

  /// Identity of the installed compiler, from its library file (GNU build id) without loading it.
  /// Empty where none is installed. Constant for the life of the process.
  virtual const std::string& identity() const = 0;

  /// Why identity() is empty and what to install; for people.
  virtual std::string unavailable_reason() const = 0;

  /// Canonical options for a target, in order; part of the key. Needs no compiler.
  virtual std::vector<std::string> options(const Target& target) const = 0;

  /// kCompileFailed with the whole log in `detail`; kUnavailable where there is no compiler.
  virtual Result<CompileOutput> compile(const CompileRequest& request) = 0;
};

}  // namespace laya::jit
