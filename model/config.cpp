#include "model/config.h"

#include <string>

#include "model/json_file.h"

namespace laya::model {
namespace {

constexpr double kMinTheta = 1.0;
constexpr double kMaxTheta = 1e12;
constexpr double kDefaultFullTheta = 160000.0;
constexpr double kDefaultSlidingTheta = 10000.0;

tl::unexpected<Error> wrong(const JsonFile& file, std::string_view field,
                            std::string_view allowed) {
  return tl::make_unexpected(file.error(field, file.find(field), allowed));
}

// Settings that would change what is computed; any other value than the one supported is refused,
// since it would give wrong answers in silence.
Result<void> check_fixed_settings(const JsonFile& file) {
  for (const char* field : {"attention_bias", "mlp_bias", "norm_bias"}) {
    const nlohmann::json* value = file.find(field);
    if (value != nullptr && *value != false) return wrong(file, field, "false");
  }
  const nlohmann::json* act = file.find("hidden_activation");
  if (act != nullptr && *act != "gelu") return wrong(file, "hidden_activation", "\"gelu\"");
  const nlohmann::json* type = file.find("model_type");
  if (type != nullptr && *type != "modernbert") return wrong(file, "model_type", "\"modernbert\"");
  return {};
}

Result<std::vector<bool>> read_layers(const JsonFile& file) {
  LAYA_ASSIGN(const int64_t layers, file.integer("num_hidden_layers", 1, 1024));
  LAYA_ASSIGN(const int64_t every, file.integer("global_attn_every_n_layers", 1, 1024, 3));
  const nlohmann::json* types = file.find("layer_types");
  if (types == nullptr) return sliding_pattern(layers, every);
  if (!types->is_array() || types->size() != static_cast<size_t>(layers)) {
    return wrong(file, "layer_types", "a list with one entry per layer");
  }
  std::vector<bool> sliding;
  for (const nlohmann::json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention") {
      return wrong(file, "layer_types", "\"full_attention\" and \"sliding_attention\"");
    }
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

// The base of one kind of layer as transformers 5 writes it; nullptr if the file does not say.
Result<const nlohmann::json*> new_style_theta(const JsonFile& file, const char* layer_type) {
  const nlohmann::json* all = file.find("rope_parameters");
  if (all == nullptr) return nullptr;
  if (!all->is_object()) return wrong(file, "rope_parameters", "an object");
  // One flat set of parameters holds for both kinds of layer.
  const auto own = all->find(layer_type);
  const nlohmann::json& params = own != all->end() && own->is_object() ? *own : *all;
  const auto type = params.find("rope_type");
  if (type != params.end() && !type->is_null() && *type != "default") {
    return wrong(file, "rope_parameters", "rope_type \"default\"");
  }
  const auto theta = params.find("rope_theta");
  return theta == params.end() || theta->is_null() ? nullptr : &*theta;
}

Result<double> read_theta(const JsonFile& file, const char* layer_type, const char* old_field,
                          double fallback) {
  LAYA_ASSIGN(const nlohmann::json* theta, new_style_theta(file, layer_type));
  if (theta == nullptr) return file.number(old_field, kMinTheta, kMaxTheta, fallback);
  const bool is_legal =
      theta->is_number() && theta->get<double>() >= kMinTheta && theta->get<double>() <= kMaxTheta;
  if (is_legal) return theta->get<double>();
  const std::string field = std::string("rope_parameters.") + layer_type + ".rope_theta";
  return tl::make_unexpected(file.error(field, theta, "a number from 1 to 1e12"));
}

Result<void> read_thetas(const JsonFile& file, Config& config) {
  LAYA_ASSIGN(config.full_theta,
              read_theta(file, "full_attention", "global_rope_theta", kDefaultFullTheta));
  // A null local base of a transformers 4 file means: the same as the global one.
  const auto old = file.root().find("local_rope_theta");
  const bool same = old != file.root().end() && old->is_null();
  LAYA_ASSIGN(config.sliding_theta, read_theta(file, "sliding_attention", "local_rope_theta",
                                               same ? config.full_theta : kDefaultSlidingTheta));
  return {};
}

Result<void> read_encoder(const JsonFile& file, Config& config) {
  LAYA_TRY(check_fixed_settings(file));
  LAYA_ASSIGN(config.vocab_size, file.integer("vocab_size", 1, int64_t{1} << 24));
  LAYA_ASSIGN(config.hidden_size, file.integer("hidden_size", kHeadDim, 8192));
  if (config.hidden_size % kHeadDim != 0) return wrong(file, "hidden_size", "a multiple of 64");
  LAYA_ASSIGN(const int64_t heads, file.integer("num_attention_heads", 1, 128));
  if (heads != config.heads()) return wrong(file, "num_attention_heads", "hidden_size / 64");
  LAYA_ASSIGN(config.intermediate_size, file.integer("intermediate_size", 32, 65536));
  if (config.intermediate_size % 32 != 0)
    return wrong(file, "intermediate_size", "a multiple of 32");
  LAYA_ASSIGN(config.max_positions, file.integer("max_position_embeddings", 1, 1 << 20));
  LAYA_ASSIGN(const int64_t local, file.integer("local_attention", 2, 1 << 20, 128));
  config.window = local / 2;
  LAYA_TRY(file.number("norm_eps", 1e-5, 1e-5, 1e-5));  // the head's norms have no other either
  LAYA_ASSIGN(config.sliding, read_layers(file));
  return read_thetas(file, config);
}

Result<void> read_head(const JsonFile& file, Config& config) {
  LAYA_ASSIGN(config.head_layers, file.integer("head_layers", 1, 64));
  const nlohmann::json* costs = file.find("act_costs");
  if (costs != nullptr && (!costs->is_object() || costs->size() > 63)) {
    return wrong(file, "act_costs", "an object of at most 63 actions");
  }
  config.actions = 1 + (costs == nullptr ? 0 : static_cast<int64_t>(costs->size()));
  return {};
}

Config modernbert(int64_t vocab, int64_t hidden, int64_t layers, int64_t intermediate,
                  double sliding_theta) {
  Config config;
  config.vocab_size = vocab;
  config.hidden_size = hidden;
  config.intermediate_size = intermediate;
  config.max_positions = 8192;
  config.window = 64;
  config.sliding = sliding_pattern(layers, 3);
  config.full_theta = kDefaultFullTheta;
  config.sliding_theta = sliding_theta;
  config.head_layers = 2;
  config.actions = 2;
  return config;
}

}  // namespace

std::vector<bool> sliding_pattern(int64_t layers, int64_t full_every) {
  std::vector<bool> sliding;
  for (int64_t i = 0; i < layers; ++i) sliding.push_back(i % full_every != 0);
  return sliding;
}

Result<Config> preset_config(std::string_view name) {
  if (name == "tiny") return modernbert(1024, 128, 5, 192, kDefaultSlidingTheta);
  if (name == "base") return modernbert(256000, 768, 22, 1152, kDefaultFullTheta);
  if (name == "large") return modernbert(50368, 1024, 28, 2624, kDefaultSlidingTheta);
  return fail(ErrorKind::kBadInput,
              "preset '" + std::string(name) + "' is not one of tiny, base, large");
}

Result<Config> read_config(const std::filesystem::path& directory) {
  Config config;
  LAYA_ASSIGN(const JsonFile agent, JsonFile::read(directory / "rl_agent_config.json"));
  LAYA_TRY(read_head(agent, config));
  LAYA_ASSIGN(const JsonFile encoder, JsonFile::read(directory / "encoder" / "config.json"));
  LAYA_TRY(read_encoder(encoder, config));
  return config;
}

}  // namespace laya::model
