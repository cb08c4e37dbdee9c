#include "jit/builder.h"

#include <chrono>
#include <mutex>
#include <thread>

#include "jit/explain.h"

namespace laya::jit {
namespace {

/// Longer than those who wait for a kernel sleep between two looks (cache/key_locks.cpp).
constexpr std::chrono::milliseconds kWayForOpenCompilers{20};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Builder::Builder(TemplateLibrary library, std::unique_ptr<cache::Store> store, cache::Layers layers,
                 std::unique_ptr<Compiler> cuda, std::unique_ptr<Compiler> cpu, Policy policy,
                 LogFn log)
    : library_(std::move(library)),
      store_(std::move(store)),
      layers_(std::move(layers)),
      cuda_(std::move(cuda)),
      cpu_(std::move(cpu)),
      policy_(policy),
      log_(std::move(log)) {}

Result<void> Builder::add_template(std::string name, Backend backend, std::string text) {
  std::unique_lock lock(library_mutex_);
  return library_.add_template(std::move(name), backend, std::move(text));
}

void Builder::add_header(std::string name, Backend backend, std::string text) {
  std::unique_lock lock(library_mutex_);
  library_.add_header(std::move(name), backend, std::move(text));
}

Result<Builder::Job> Builder::prepare(const KernelSpec& spec) const {
  const Backend backend = spec.target().backend;
  std::shared_lock lock(library_mutex_);
  LAYA_ASSIGN(auto source, library_.find(spec.template_name(), backend));
  ArtifactInputs inputs;
  LAYA_ASSIGN(inputs.source, expand(*source, spec));
  LAYA_ASSIGN(Signature signature, resolve_signature(*source, spec));
  inputs.headers = library_.reachable_headers(inputs.source.whole(), backend);
  inputs.options = (backend == Backend::kCuda ? cuda_ : cpu_)->options(spec.target());
  cache::Key key = artifact_key(spec, inputs);
  return Job{source->entry, std::move(signature), source->is_dependent, std::move(inputs),
             std::move(key)};
}

std::optional<BuiltArtifact> Builder::find(Job& job, const KernelSpec& spec) {
  // A process that may not compile takes what anyone's compiler made, the last used first, as does
  // one without a compiler.
  const std::string& identity = compiler(spec.target().backend).identity();
  const auto producer = policy_.mode == JitMode::kNever ? std::string_view{} : identity;
  if (auto artifact = accept(job, spec, store_->find(job.key, producer))) {
    ++disk_hits_;
    return finish(std::move(job), std::move(*artifact), BuildSource::kUserCache);
  }
  auto artifact = find_in_layers(job, spec, producer);
  if (!artifact) return std::nullopt;
  ++disk_hits_;
  ++layer_hits_;
  return finish(std::move(job), std::move(*artifact), BuildSource::kLayer);
}

std::optional<Artifact> Builder::find_in_layers(const Job& job, const KernelSpec& spec,
                                                std::string_view producer) {
  auto record = layers_.find(job.key, producer);
  if (!record) return std::nullopt;
  auto artifact = from_record(*record);
  if (artifact) {
    if (policy_.copy_layer_hits) store_->put(job.key, *record);
    return std::move(*artifact);
  }
  log(LogLevel::kWarning,
      spec.to_string() + ": left out a layer's kernel: " + artifact.error().message);
  return std::nullopt;
}

std::optional<Artifact> Builder::accept(const Job& job, const KernelSpec& spec,
                                        std::optional<cache::Record> record) {
  if (!record) return std::nullopt;
  const std::string producer = record->producer;
  auto artifact = from_record(std::move(*record));
  if (artifact) return std::move(*artifact);
  log(LogLevel::kWarning,
      spec.to_string() + ": dropped a stored kernel: " + artifact.error().message);
  store_->drop(job.key, producer);
  return std::nullopt;
}

Result<Artifact> Builder::compile(const Job& job, const KernelSpec& spec) {
  const auto start = std::chrono::steady_clock::now();
  Compiler& compiler = this->compiler(spec.target().backend);
  CompileRequest request;
  request.name = spec.template_name() + (spec.target().backend == Backend::kCuda ? ".cu" : ".cpp");
  request.source = job.inputs.source.whole();
  request.headers = job.inputs.headers;
  request.entry = job.entry;
  request.target = spec.target();
  request.options = job.inputs.options;
  auto output = compiler.compile(request);
  if (!output) {
    Error error = std::move(output).error();
    error.message = spec.to_string() + ": " + error.message;
    return tl::make_unexpected(std::move(error));
  }
  Artifact artifact{std::move(output->object), output->attributes, seconds_since(start)};
  ++compiled_;
  compile_microseconds_ += static_cast<int64_t>(artifact.compile_seconds * 1e6);
  log(LogLevel::kInfo,
      "compiled " + spec.to_string() + " in " + std::to_string(artifact.compile_seconds) + " s");
  if (!compiler.identity().empty()) {
    store_->put(job.key, to_record(spec, artifact, compiler.identity()));
  }
  return artifact;
}

tl::unexpected<Error> Builder::not_cached(const Job& job, const KernelSpec& spec) {
  return fail(
      ErrorKind::kNotCached,
      spec.to_string() + " is not in the cache " + store_->options().directory.string() +
          " and compiling is switched off (LAYA_JIT=never): " + explain_miss(*store_, job.key));
}

BuiltArtifact Builder::finish(Job&& job, Artifact artifact, BuildSource source) {
  return {std::move(artifact), source, std::move(job.entry), std::move(job.signature),
          job.is_dependent};
}

Result<BuiltArtifact> Builder::build(const KernelSpec& spec) {
  LAYA_ASSIGN(Job job, prepare(spec));
  if (auto found = find(job, spec)) return std::move(*found);
  if (policy_.mode == JitMode::kNever) {
    ++failed_;
    return not_cached(job, spec);
  }
  const std::string& identity = compiler(spec.target().backend).identity();
  cache::BuildTurn turn = await_turn(job, identity);
  if (auto stored = accept(job, spec, std::move(turn.record))) {
    ++disk_hits_;
    return finish(std::move(job), std::move(*stored), BuildSource::kUserCache);
  }
  auto artifact = compile(job, spec);
  if (!artifact) {
    ++failed_;
    return tl::make_unexpected(std::move(artifact).error());
  }
  return finish(std::move(job), std::move(*artifact), BuildSource::kCompiled);
}

cache::BuildTurn Builder::await_turn(const Job& job, const std::string& producer) {
  // Processes that start together want the same kernels in the same order. If any of them took the
  // next one, each would open a compiler, which takes as long as a small kernel.
  if (has_waited_ && compiled_ == 0) std::this_thread::sleep_for(kWayForOpenCompilers);
  cache::BuildTurn turn = store_->await_turn(job.key, producer);
  if (turn.record) has_waited_ = true;
  return turn;
}

Result<BuiltArtifact> Builder::rebuild(const KernelSpec& spec) {
  LAYA_ASSIGN(Job job, prepare(spec));
  if (policy_.mode == JitMode::kNever) return not_cached(job, spec);
  LAYA_ASSIGN(Artifact artifact, compile(job, spec));
  return finish(std::move(job), std::move(artifact), BuildSource::kCompiled);
}

Result<cache::Key> Builder::key(const KernelSpec& spec) const {
  LAYA_ASSIGN(Job job, prepare(spec));
  return std::move(job.key);
}

Result<std::string> Builder::explain(const KernelSpec& spec) {
  LAYA_ASSIGN(const cache::Key key, this->key(spec));
  const std::string& identity = compiler(spec.target().backend).identity();
  const auto found = [&](const cache::Record& record, const char* where) {
    const bool usable = identity.empty() || identity == record.producer;
    return "entry " + key.digest.hex() + " " + where + " has this kernel, made by compiler " +
           record.producer +
           (usable ? ""
                   : "; the compiler installed is " + identity +
                         ", so it is used with LAYA_JIT=never only");
  };
  for (const std::string_view producer : {std::string_view(identity), std::string_view{}}) {
    if (auto record = store_->find(key, producer)) return found(*record, "of the cache");
    if (auto record = layers_.find(key, producer)) return found(*record, "of a layer");
  }
  return "not stored: " + explain_miss(*store_, key);
}

void Builder::count_into(EngineStats& stats) const {
  stats.compiled += compiled_;
  stats.disk_hits += disk_hits_;
  stats.layer_hits += layer_hits_;
  stats.failed += failed_;
  stats.compile_seconds += static_cast<double>(compile_microseconds_) * 1e-6;
}

void Builder::log(LogLevel level, const std::string& line) const {
  if (log_) log_(level, line);
}

}  // namespace laya::jit
