// What the tests of the model share: engines, devices, checkpoints and fixtures.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jit/device.h"
#include "jit/engine.h"
#include "model/batch.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "model/synthetic.h"
#include "tests/model/fixture_models.h"
#include "tests/temp_dir.h"

namespace laya::test {

/// Fails the test with the error's text if there is one.
template <class T>
T value_of(Result<T> result) {
  if (!result) FAIL(result.error().to_string());
  return std::move(*result);
}
inline void check_ok(const Result<void>& result) {
  if (!result) FAIL(result.error().to_string());
}
/// The message of an expected failure; empty (and a failed check) if there is none.
template <class T>
std::string message_of(const Result<T>& result) {
  CHECK_FALSE(result.has_value());
  return result ? std::string() : result.error().message;
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::shared_ptr<jit::Engine> make_engine(const std::filesystem::path& cache_dir) {
  jit::Options options;
  options.cache_dir = cache_dir;
  return value_of(jit::Engine::create(std::move(options)));
}

/// One engine for the whole program, so that each kernel is compiled once.
inline std::shared_ptr<jit::Engine> shared_engine() {
  static const TempDir directory;
  static const std::shared_ptr<jit::Engine> engine = make_engine(directory.path());
  return engine;
}

inline std::shared_ptr<jit::Device> cpu_device() {
  static const std::shared_ptr<jit::Device> cpu = jit::open_cpu_device(0);
  return cpu;
}

/// The host's CPU, where it has a compiler, and the first GPU, where there is one.
inline std::vector<std::shared_ptr<jit::Device>> devices() {
  std::vector<std::shared_ptr<jit::Device>> found;
  const jit::Compiler& compiler = shared_engine()->compiler(jit::Backend::kCpu);
  if (compiler.identity().empty()) {
    MESSAGE("[SKIP] CPU: " << compiler.unavailable_reason());
  } else {
    found.push_back(cpu_device());
  }
  if (auto gpu = jit::open_cuda_device(0)) {
    found.push_back(*gpu);
  } else {
    MESSAGE("[SKIP] CUDA: " << gpu.error().message);
  }
  return found;
}

inline std::string fixture_path(const std::string& name) {
  return std::string(LAYA_SOURCE_DIR) + "/tests/fixtures/" + name;
}

inline FixtureModel fixture_model(const std::string& name) {
  for (FixtureModel& model : read_fixture_models(fixture_path("models.json"))) {
    if (model.name == name) return model;
  }
  FAIL("no fixture model " << name);
  return {};
}

/// Directory of a fixture model's checkpoint, written once per program.
inline std::filesystem::path checkpoint_of(const std::string& name) {
  static const TempDir directory;
  const std::filesystem::path path = directory.path() / name;
  if (!std::filesystem::exists(path)) {
    const FixtureModel fixture = fixture_model(name);
    model::SyntheticOptions options;
    options.seed = fixture.seed;
    check_ok(model::write_synthetic_checkpoint(path, fixture.config, options));
  }
  return path;
}

inline std::shared_ptr<model::Model> load_fixture_model(const std::string& name,
                                                        std::shared_ptr<jit::Device> device,
                                                        const model::ModelOptions& options = {}) {
  return value_of(
      model::Model::load(checkpoint_of(name), shared_engine(), std::move(device), options));
}

/// Rows and what the reference says about them.
struct FixtureRows {
  std::vector<model::Row> rows;
  std::vector<model::Prediction> expected;
};

inline FixtureRows read_fixture_rows(const std::string& name) {
  std::ifstream stream(fixture_path("model_" + name + ".json"));
  FixtureRows fixture;
  for (const nlohmann::json& entry : nlohmann::json::parse(stream)) {
    fixture.rows.push_back({entry.at("ids"), entry.at("markers"), entry.at("qtype")});
    fixture.expected.push_back(
        {entry.at("logits"), entry.at("probabilities"), entry.at("action_logits")});
  }
  return fixture;
}

}  // namespace laya::test
