// From a KernelSpec to an Artifact: expand, form the key, look in the store, else compile and
// store. Knows nothing of devices and loaded kernels.
#pragma once

#include <atomic>
#include <memory>
#include <shared_mutex>

#include "cache/layers.h"
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
  bool is_dependent = false;  ///< see Template
};

/// Thread-safe.
class Builder {
 public:
  /// How to build; part of Options.
  struct Policy {
    JitMode mode = JitMode::kAuto;
    bool copy_layer_hits = false;
  };

  Builder(TemplateLibrary library, std::unique_ptr<cache::Store> store, cache::Layers layers,
          std::unique_ptr<Compiler> cuda, std::unique_ptr<Compiler> cpu, Policy policy, LogFn log);

  Result<void> add_template(std::string name, Backend backend, std::string text);
  void add_header(std::string name, Backend backend, std::string text);

  /// Errors as of Engine::kernel(), but for those of loading.
  Result<BuiltArtifact> build(const KernelSpec& spec);

  /// Compiles even if the store has the kernel, and replaces what is stored: for bytes that turned
  /// out not to load.
  Result<BuiltArtifact> rebuild(const KernelSpec& spec);

  /// As Engine::key() and Engine::explain().
  Result<cache::Key> key(const KernelSpec& spec) const;
  Result<std::string> explain(const KernelSpec& spec);

  Compiler& compiler(Backend backend) { return backend == Backend::kCuda ? *cuda_ : *cpu_; }
  cache::Store& store() { return *store_; }
  cache::Layers& layers() { return layers_; }

  /// Adds this builder's counters to `stats`.
  void count_into(EngineStats& stats) const;

 private:
  struct Job {
    std::string entry;
    Signature signature;
    bool is_dependent;
    ArtifactInputs inputs;
    cache::Key key;
  };
  Result<Job> prepare(const KernelSpec& spec) const;
  /// What the store or a layer has.
  std::optional<BuiltArtifact> find(Job& job, const KernelSpec& spec);
  std::optional<Artifact> find_in_layers(const Job& job, const KernelSpec& spec,
                                         std::string_view producer);
  std::optional<Artifact> accept(const Job& job, const KernelSpec& spec,
                                 std::optional<cache::Record> record);
  /// cache::Store::await_turn(), but first lets others go who have their compilers open.
  cache::BuildTurn await_turn(const Job& job, const std::string& producer);
  Result<Artifact> compile(const Job& job, const KernelSpec& spec);
  static BuiltArtifact finish(Job&& job, Artifact artifact, BuildSource source);
  tl::unexpected<Error> not_cached(const Job& job, const KernelSpec& spec);
  void log(LogLevel level, const std::string& line) const;

  mutable std::shared_mutex library_mutex_;
  TemplateLibrary library_;  ///< guarded by library_mutex_
  std::unique_ptr<cache::Store> store_;
  cache::Layers layers_;
  std::unique_ptr<Compiler> cuda_;
  std::unique_ptr<Compiler> cpu_;
  const Policy policy_;
  const LogFn log_;
  std::atomic<bool> has_waited_ = false;  ///< and was given what another process compiled
  std::atomic<int64_t> compiled_ = 0;
  std::atomic<int64_t> disk_hits_ = 0;
  std::atomic<int64_t> layer_hits_ = 0;
  std::atomic<int64_t> failed_ = 0;
  std::atomic<int64_t> compile_microseconds_ = 0;
};

}  // namespace laya::jit
