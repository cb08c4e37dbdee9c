// The engine: from a KernelSpec to a Kernel, compiling at most once per process and, with the
// cache, at most once per installation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/layers.h"
#include "cache/result.h"
#include "cache/store.h"
#include "jit/compiler.h"
#include "jit/kernel.h"
#include "jit/kernel_spec.h"
#include "jit/options.h"

namespace laya::jit {

/// Counters since the engine was created.
struct EngineStats {
  int64_t compiled = 0;        ///< kernels that went through a compiler
  int64_t disk_hits = 0;       ///< kernels taken from the store or a layer
  int64_t layer_hits = 0;      ///< those of them that came from a layer
  int64_t memory_hits = 0;     ///< lookups answered by the memory table
  int64_t failed = 0;          ///< builds that ended in an error
  double compile_seconds = 0;  ///< summed over all compiles, not wall time
};

enum class BuildSource { kCompiled, kUserCache, kLayer, kMemory };
/// "compiled", "user", "layer", "memory"
const char* to_string(BuildSource source);

/// What became of one spec in warm().
struct BuildReport {
  KernelSpec spec;
  Result<BuildSource> outcome;  ///< or why it failed
  double seconds = 0;           ///< of this spec alone
  int64_t artifact_bytes = 0;
  KernelAttributes attributes;
};

/// Thread-safe. Kernels may outlive their engine.
class Engine {
 public:
  /// Never fails for a cache reason. kBadInput: an option has no legal value.
  static Result<std::shared_ptr<Engine>> create(Options options);
  virtual ~Engine() = default;

  /// Adds a template of the application's own, in the form that jit/template.h describes; replaces
  /// one of the same name for specs asked for from now on. kBadSpec: the declaration is wrong.
  virtual Result<void> add_template(std::string name, Backend backend, std::string text) = 0;
  /// Adds a header that templates may include as `#include "name"`.
  virtual Result<void> add_header(std::string name, Backend backend, std::string text) = 0;

  /// Returns the kernel for `spec`, building it if needed.
  /// Blocks while another thread builds the same spec; other specs are not blocked.
  /// A hit in memory takes no exclusive lock and allocates nothing.
  /// Errors: kBadSpec (rejected, nothing built), kCompileFailed (detail: the full log), kNotCached
  /// (compiling is switched off), kUnavailable (no compiler, no driver), kDeviceError. Failures are
  /// not remembered: the next call tries again. A broken or busy store is not an error.
  virtual Result<std::shared_ptr<const Kernel>> kernel(const KernelSpec& spec) = 0;

  /// Makes sure that an artifact for each spec is in the store, without loading it and so without
  /// its device. Compiles on Options::jobs threads, in the order given, and reports in that order.
  /// `on_done`, if given, is called once per spec as it finishes, never from two threads at once.
  virtual std::vector<BuildReport> warm(
      std::span<const KernelSpec> specs,
      const std::function<void(const BuildReport&)>& on_done = {}) = 0;

  /// The key under which the artifact for `spec` is stored. kBadSpec.
  virtual Result<cache::Key> key(const KernelSpec& spec) const = 0;
  /// Says for a person where the kernel for `spec` is stored, or why it is not: which field of its
  /// key differs from the nearest entry, and by what. kBadSpec.
  virtual Result<std::string> explain(const KernelSpec& spec) = 0;

  virtual EngineStats stats() const = 0;
  virtual cache::Store& store() = 0;
  virtual cache::Layers& layers() = 0;
  virtual const Options& options() const = 0;
  /// The compiler of a backend, for its identity; compiles nothing by itself.
  virtual Compiler& compiler(Backend backend) = 0;
};

}  // namespace laya::jit
