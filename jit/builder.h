// From a KernelSpec to an Artifact: expand, form the key, look in the store, else compile and
// store. Knows nothing of devices and loaded kernels.
#pragma once

#include <atomic>
#include <memory>
#include <shared_mutex>

#include "cache/store.h"
#include "jit/artifact.h"
#include "jit/compilers.h"
#include "jit/engine.h"
#include "jit/template_library.h"

namespace laya::jit {

/// An artifact, ready to load, and where it came from.
struct BuiltArtifact {
  Artifact artifact;
  BuildSource source = BuildSource::kCompiled;
  std::string entry;
  Signature signature;
};

/// Thread-safe.
class Builder {
 public:
  Builder(TemplateLibrary library, std::unique_ptr<cache::Store> store,
          std::unique_ptr<Compiler> cuda, std::unique_ptr<Compiler> cpu, JitMode mode, LogFn log);

  Result<void> add_template(std::string name, Backend backend, std::string text);
  void add_header(std::string name, Backend backend, std::string text);

  /// Errors as of Engine::kernel(), but for those of loading.
  Result<BuiltArtifact> build(const KernelSpec& spec);

  /// Compiles even if the store has the kernel, and replaces what is stored: for bytes that turned
  /// out not to load.
  Result<BuiltArtifact> rebuild(const KernelSpec& spec);

  Compiler& compiler(Backend backend) { return backend == Backend::kCuda ? *cuda_ : *cpu_; }
  cache::Store& store() { return *store_; }

  /// Adds this builder's counters to `stats`.
  void count_into(EngineStats& stats) const;

 private:
  struct Job {
    std::string entry;
    Signature signature;
    ArtifactInputs inputs;
    cache::Key key;
  };
  Result<Job> prepare(const KernelSpec& spec) const;
  std::optional<Artifact> find(const Job& job, const KernelSpec& spec);
  Result<Artifact> compile(const Job& job, const KernelSpec& spec);
  static BuiltArtifact finish(Job&& job, Artifact artifact, BuildSource source);
  tl::unexpected<Error> not_cached(const Job& job, const KernelSpec& spec);
  void log(LogLevel level, const std::string& line) const;

  mutable std::shared_mutex library_mutex_;
  TemplateLibrary library_;  ///< guarded by library_mutex_
  std::unique_ptr<cache::Store> store_;
  std::unique_ptr<Compiler> cuda_;
  std::unique_ptr<Compiler> cpu_;
  const JitMode mode_;
  const LogFn log_;
  std::atomic<int64_t> compiled_ = 0;
  std::atomic<int64_t> disk_hits_ = 0;
  std::atomic<int64_t> failed_ = 0;
  std::atomic<int64_t> compile_microseconds_ = 0;
};

}  // namespace laya::jit
