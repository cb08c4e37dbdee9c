// A CPU device that claims to have graphs and an engine that notes what is launched, so that all
// that the model does on a GPU (rounded shape classes, recording, replaying, forgetting) runs in
// tests without one. A graph is a list of copies, and of launches with copies of their arguments.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "jit/device.h"
#include "jit/engine.h"
#include "jit/kernel.h"

namespace laya::test {

/// What happened, for checks.
struct Recording {
  std::mutex mutex;
  std::set<std::string> launched;  ///< names of kernels
  int captures = 0;
  int replays = 0;
  int graphs_alive = 0;
};

class RecordedGraph final : public jit::Graph {
 public:
  RecordedGraph(std::shared_ptr<Recording> recording,
                std::vector<std::function<Result<void>()>> recorded)
      : launches(std::move(recorded)), recording_(std::move(recording)) {
    ++recording_->graphs_alive;
  }
  ~RecordedGraph() override { --recording_->graphs_alive; }

  std::vector<std::function<Result<void>()>> launches;

 private:
  std::shared_ptr<Recording> recording_;
};

class RecordingStream final : public jit::Stream {
 public:
  RecordingStream(std::shared_ptr<jit::Device> device, std::unique_ptr<jit::Stream> inner,
                  std::shared_ptr<Recording> recording)
      : device_(std::move(device)), inner_(std::move(inner)), recording_(std::move(recording)) {}

  jit::Device& device() const override { return *device_; }
  Result<void> synchronize() override { return inner_->synchronize(); }
  Result<void> begin_capture() override {
    is_capturing_ = true;
    return {};
  }
  Result<std::unique_ptr<jit::Graph>> end_capture() override {
    is_capturing_ = false;
    ++recording_->captures;
    return std::make_unique<RecordedGraph>(recording_, std::exchange(launches_, {}));
  }
  Result<void> launch(jit::Graph& graph) override {
    ++recording_->replays;
    for (const auto& launch : static_cast<RecordedGraph&>(graph).launches) LAYA_TRY(launch());
    return {};
  }
  Result<void> copy_to_device(void* target, const void* source, size_t bytes) override {
    return submit(
        [this, target, source, bytes] { return inner_->copy_to_device(target, source, bytes); });
  }
  Result<void> copy_to_host(void* target, const void* source, size_t bytes) override {
    return submit(
        [this, target, source, bytes] { return inner_->copy_to_host(target, source, bytes); });
  }
  Result<void> fill(void* target, uint8_t value, size_t bytes) override {
    return inner_->fill(target, value, bytes);
  }
  Result<double> time_ms(const std::function<Result<void>()>& work) override {
    return inner_->time_ms(work);
  }

  Result<void> submit(std::function<Result<void>()> launch) {
    if (!is_capturing_) return launch();
    launches_.push_back(std::move(launch));
    return {};
  }
  jit::Stream& inner() { return *inner_; }

 private:
  std::shared_ptr<jit::Device> device_;
  std::unique_ptr<jit::Stream> inner_;
  std::shared_ptr<Recording> recording_;
  bool is_capturing_ = false;
  std::vector<std::function<Result<void>()>> launches_;
};

class RecordingDevice final : public jit::Device {
 public:
  RecordingDevice(std::shared_ptr<jit::Device> inner, std::shared_ptr<Recording> recording)
      : inner_(std::move(inner)), recording_(std::move(recording)) {}

  const jit::Target& target() const override { return inner_->target(); }
  const std::string& name() const override { return inner_->name(); }
  bool has_graphs() const override { return true; }
  int processor_count() const override { return 1; }
  Result<jit::Buffer> allocate(size_t bytes) override { return inner_->allocate(bytes); }
  Result<jit::Buffer> allocate_host(size_t bytes) override { return inner_->allocate_host(bytes); }
  Result<std::unique_ptr<jit::Stream>> create_stream() override {
    LAYA_ASSIGN(auto stream, inner_->create_stream());
    return std::make_unique<RecordingStream>(inner_, std::move(stream), recording_);
  }

 protected:
  void release(void*, bool) noexcept override {}  // buffers are the inner device's

 private:
  std::shared_ptr<jit::Device> inner_;
  std::shared_ptr<Recording> recording_;
};

class RecordingKernel final : public jit::Kernel {
 public:
  RecordingKernel(std::shared_ptr<const jit::Kernel> inner, std::shared_ptr<Recording> recording)
      : Kernel(inner->name(), inner->signature(), inner->attributes()),
        inner_(std::move(inner)),
        recording_(std::move(recording)) {}

  Result<int> occupancy(int threads, uint32_t bytes) const override {
    return inner_->occupancy(threads, bytes);
  }

 protected:
  Result<void> do_launch(jit::Stream& stream, const jit::LaunchShape& shape,
                         void* const* values) const override {
    {
      const std::lock_guard lock(recording_->mutex);
      recording_->launched.insert(name());
    }
    auto& recording = static_cast<RecordingStream&>(stream);
    std::vector<std::string> copies;
    for (size_t i = 0; i < signature().size(); ++i) {
      copies.emplace_back(static_cast<const char*>(values[i]),
                          static_cast<size_t>(jit::size_of(signature()[i].kind)));
    }
    return recording.submit([inner = inner_, &target = recording.inner(), shape, copies] {
      std::vector<jit::ArgRef> args;
      for (const std::string& copy : copies) {
        args.push_back({copy.data(), static_cast<uint32_t>(copy.size())});
      }
      return inner->launch_args(target, shape, args);
    });
  }

 private:
  std::shared_ptr<const jit::Kernel> inner_;
  std::shared_ptr<Recording> recording_;
};

class RecordingEngine final : public jit::Engine {
 public:
  RecordingEngine(std::shared_ptr<jit::Engine> inner, std::shared_ptr<Recording> recording)
      : inner_(std::move(inner)), recording_(std::move(recording)) {}

  Result<void> add_template(std::string name, jit::Backend backend, std::string text) override {
    return inner_->add_template(std::move(name), backend, std::move(text));
  }
  Result<void> add_header(std::string name, jit::Backend backend, std::string text) override {
    return inner_->add_header(std::move(name), backend, std::move(text));
  }
  Result<std::shared_ptr<const jit::Kernel>> kernel(const jit::KernelSpec& spec) override {
    LAYA_ASSIGN(auto kernel, inner_->kernel(spec));
    return std::make_shared<RecordingKernel>(std::move(kernel), recording_);
  }
  std::vector<jit::BuildReport> warm(
      std::span<const jit::KernelSpec> specs,
      const std::function<void(const jit::BuildReport&)>& on_done) override {
    return inner_->warm(specs, on_done);
  }
  Result<cache::Key> key(const jit::KernelSpec& spec) const override { return inner_->key(spec); }
  Result<std::string> explain(const jit::KernelSpec& spec) override {
    return inner_->explain(spec);
  }
  jit::EngineStats stats() const override { return inner_->stats(); }
  cache::Store& store() override { return inner_->store(); }
  cache::Layers& layers() override { return inner_->layers(); }
  const jit::Options& options() const override { return inner_->options(); }
  jit::Compiler& compiler(jit::Backend backend) override { return inner_->compiler(backend); }

 private:
  std::shared_ptr<jit::Engine> inner_;
  std::shared_ptr<Recording> recording_;
};

/// A device and an engine that record into one Recording.
struct RecordingBackend {
  std::shared_ptr<Recording> recording = std::make_shared<Recording>();
  std::shared_ptr<jit::Device> device;
  std::shared_ptr<jit::Engine> engine;

  RecordingBackend(std::shared_ptr<jit::Device> cpu, std::shared_ptr<jit::Engine> inner)
      : device(std::make_shared<RecordingDevice>(std::move(cpu), recording)),
        engine(std::make_shared<RecordingEngine>(std::move(inner), recording)) {}
};

}  // namespace laya::test
