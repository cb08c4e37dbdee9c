#include "jit/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "jit/builder.h"
#include "jit/loader.h"
#include "jit/single_flight.h"

namespace laya::jit {
namespace {

struct SpecHash {
  size_t operator()(const KernelSpec& spec) const { return spec.hash(); }
};
using KernelPtr = std::shared_ptr<const Kernel>;
using ArtifactPtr = std::shared_ptr<const BuiltArtifact>;

Result<KernelPtr> load(const KernelSpec& spec, const BuiltArtifact& built) {
  LoadRequest request{
      spec.to_string(),          built.entry,           spec.target(),     built.signature,
      built.artifact.attributes, built.artifact.object, built.is_dependent};
  return spec.target().backend == Backend::kCuda ? load_cuda_kernel(std::move(request))
                                                 : load_cpu_kernel(std::move(request));
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(Options options, std::unique_ptr<Builder> builder)
      : options_(std::move(options)), builder_(std::move(builder)) {}

  Result<void> add_template(std::string name, Backend backend, std::string text) override {
    return builder_->add_template(std::move(name), backend, std::move(text));
  }

  Result<void> add_header(std::string name, Backend backend, std::string text) override {
    builder_->add_header(std::move(name), backend, std::move(text));
    return {};
  }

  Result<KernelPtr> kernel(const KernelSpec& spec) override {
    if (auto found = kernels_.find(spec)) {
      memory_hits_.fetch_add(1, std::memory_order_relaxed);
      return *std::move(found);
    }
    auto kernel = kernels_.get(spec, [&] { return build_and_load(spec); });
    artifacts_.erase(spec);  // not before the kernel can be found in its place
    return kernel;
  }

  std::vector<BuildReport> warm(std::span<const KernelSpec> specs,
                                const std::function<void(const BuildReport&)>& on_done) override;

  EngineStats stats() const override {
    EngineStats stats;
    stats.memory_hits = memory_hits_;
    builder_->count_into(stats);
    return stats;
  }

  Result<cache::Key> key(const KernelSpec& spec) const override { return builder_->key(spec); }
  Result<std::string> explain(const KernelSpec& spec) override { return builder_->explain(spec); }
  cache::Store& store() override { return builder_->store(); }
  cache::Layers& layers() override { return builder_->layers(); }
  const Options& options() const override { return options_; }
  Compiler& compiler(Backend backend) override { return builder_->compiler(backend); }

 private:
  /// Null: the kernel has been loaded meanwhile.
  Result<ArtifactPtr> artifact(const KernelSpec& spec) {
    return artifacts_.get(spec, [&]() -> Result<ArtifactPtr> {
      if (kernels_.find(spec)) return nullptr;
      LAYA_ASSIGN(BuiltArtifact built, builder_->build(spec));
      return std::make_shared<const BuiltArtifact>(std::move(built));
    });
  }

  Result<KernelPtr> build_and_load(const KernelSpec& spec);
  BuildReport warm_one(const KernelSpec& spec);

  const Options options_;
  std::unique_ptr<Builder> builder_;
  SingleFlightTable<KernelSpec, KernelPtr, SpecHash> kernels_;
  /// Built and not loaded yet: bridges warm() and kernel() where the store keeps nothing.
  SingleFlightTable<KernelSpec, ArtifactPtr, SpecHash> artifacts_;
  std::atomic<int64_t> memory_hits_ = 0;
};

Result<KernelPtr> EngineImpl::build_and_load(const KernelSpec& spec) {
  LAYA_ASSIGN(const ArtifactPtr built, artifact(spec));
  auto loaded = load(spec, *built);
  if (!loaded && loaded.error().kind == ErrorKind::kDeviceError &&
      built->source != BuildSource::kCompiled) {
    // Stored bytes that this driver refuses: what the compiler here makes may still load.
    if (auto rebuilt = builder_->rebuild(spec)) loaded = load(spec, *rebuilt);
  }
  return loaded;
}

BuildReport EngineImpl::warm_one(const KernelSpec& spec) {
  const auto start = std::chrono::steady_clock::now();
  BuildReport report{spec, BuildSource::kMemory, 0, 0, {}};
  auto loaded = kernels_.find(spec);
  if (!loaded) {
    const auto built = artifact(spec);
    if (!built) {
      report.outcome = tl::make_unexpected(built.error());
    } else if (*built != nullptr) {
      report.outcome = (*built)->source;
      report.artifact_bytes = static_cast<int64_t>((*built)->artifact.object.size());
      report.attributes = (*built)->artifact.attributes;
    }
    // Another thread may have loaded it since: nobody would ask for the artifact again.
    loaded = kernels_.find(spec);
    if (loaded) artifacts_.erase(spec);
  }
  if (loaded) report.attributes = (*loaded)->attributes();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::vector<BuildReport> EngineImpl::warm(std::span<const KernelSpec> specs,
                                          const std::function<void(const BuildReport&)>& on_done) {
  std::vector<std::optional<BuildReport>> reports(specs.size());
  std::atomic<size_t> next = 0;
  std::mutex done_mutex;
  const auto work = [&] {
    for (size_t i = next++; i < specs.size(); i = next++) {
      reports[i] = warm_one(specs[i]);
      if (on_done) {
        std::lock_guard lock(done_mutex);
        on_done(*reports[i]);
      }
    }
  };
  const unsigned jobs = options_.jobs > 0 ? static_cast<unsigned>(options_.jobs)
                                          : std::max(1u, std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min<size_t>(jobs, specs.size()); ++i) threads.emplace_back(work);
    work();
  }
  std::vector<BuildReport> result;
  result.reserve(specs.size());
  for (auto& report : reports) result.push_back(std::move(*report));
  return result;
}

}  // namespace

const char* to_string(BuildSource source) {
  switch (source) {
    case BuildSource::kCompiled: return "compiled";
    case BuildSource::kUserCache: return "user";
    case BuildSource::kLayer: return "layer";
    case BuildSource::kMemory: return "memory";
  }
  return "unknown";
}

Result<std::shared_ptr<Engine>> Engine::create(Options options) {
  if (options.cache_max_bytes < 0) {
    return fail(ErrorKind::kBadInput, "cache_max_bytes is negative");
  }
  LAYA_ASSIGN(TemplateLibrary library,
              TemplateLibrary::create(options.template_dir, options.include_dirs));
  LogFn log;
  if (options.log) {
    log = [sink = options.log, limit = options.log_level](LogLevel level, std::string_view line) {
      if (level <= limit) sink(level, line);
    };
  }
  cache::StoreOptions store;
  store.directory = options.cache_dir;
  store.max_bytes = options.cache_max_bytes;
  store.build_wait = options.build_wait;
  store.log = log;
  auto builder = std::make_unique<Builder>(
      std::move(library), cache::Store::open(std::move(store)),
      cache::Layers(options.cache_layers, log), make_nvrtc_compiler(options.nvrtc_library, log),
      make_llvm_compiler(log), Builder::Policy{options.jit, options.copy_layer_hits}, log);
  return std::make_shared<EngineImpl>(std::move(options), std::move(builder));
}

}  // namespace laya::jit
