// The synthetic models that tests and fixtures are about: tests/fixtures/models.json.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/config.h"

namespace laya::test {

struct FixtureModel {
  std::string name;
  uint64_t seed = 0;
  model::Config config;
};

inline std::vector<FixtureModel> read_fixture_models(const std::string& file) {
  std::ifstream stream(file);
  std::vector<FixtureModel> models;
  const auto entries = nlohmann::json::parse(stream);
  for (const auto& [name, entry] : entries.items()) {
    FixtureModel fixture;
    fixture.name = name;
    fixture.seed = entry.at("seed");
    model::Config& config = fixture.config;
    config.vocab_size = entry.at("vocab_size");
    config.hidden_size = entry.at("hidden_size");
    config.intermediate_size = entry.at("intermediate_size");
    config.max_positions = 8192;
    config.window = 64;
    config.sliding = model::sliding_pattern(entry.at("layers"), 3);
    config.full_theta = entry.at("full_theta");
    config.sliding_theta = entry.at("sliding_theta");
    config.head_layers = entry.at("head_layers");
    config.actions = entry.at("actions");
    models.push_back(std::move(fixture));
  }
  return models;
}

}  // namespace laya::test
