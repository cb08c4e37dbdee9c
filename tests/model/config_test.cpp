#include "model/config.h"

#include "tests/model/support.h"

namespace laya::model {
namespace {

using nlohmann::json;
using test::contains;
using test::message_of;
using test::value_of;

// A checkpoint directory's two JSON files, to be changed field by field.
struct ConfigFiles {
  test::TempDir directory;
  json agent = {{"encoder", "some/model"}, {"head_layers", 2}, {"act_costs", {{"escalate", 0.5}}}};
  json encoder = {{"vocab_size", 1000},       {"hidden_size", 128},
                  {"intermediate_size", 192}, {"num_hidden_layers", 4},
                  {"num_attention_heads", 2}, {"max_position_embeddings", 8192}};

  Result<Config> read() const {
    std::filesystem::create_directories(directory.path() / "encoder");
    std::ofstream(directory.path() / "rl_agent_config.json") << agent;
    std::ofstream(directory.path() / "encoder" / "config.json") << encoder;
    return read_config(directory.path());
  }
};

}  // namespace

TEST_CASE("a configuration is read with the defaults of its format") {
  const Config config = value_of(ConfigFiles().read());
  CHECK(config.vocab_size == 1000);
  CHECK(config.heads() == 2);
  CHECK(config.sliding == std::vector<bool>{false, true, true, false});
  CHECK(config.window == 64);
  CHECK(config.full_theta == 160000.0);
  CHECK(config.sliding_theta == 10000.0);
  CHECK(config.head_layers == 2);
  CHECK(config.actions == 2);
}

TEST_CASE("RoPE bases are read in the spelling of transformers 5") {
  ConfigFiles files;
  files.encoder["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 5000.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 7000}}}};
  // Both spellings: the new one counts.
  files.encoder["global_rope_theta"] = 1.0;
  const Config config = value_of(files.read());
  CHECK(config.full_theta == 5000.0);
  CHECK(config.sliding_theta == 7000.0);
}

TEST_CASE("one flat set of RoPE parameters holds for both kinds of layer") {
  ConfigFiles files;
  files.encoder["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
  const Config config = value_of(files.read());
  CHECK(config.full_theta == 5000.0);
  CHECK(config.sliding_theta == 5000.0);
}

TEST_CASE("RoPE bases are read in the spelling of transformers 4") {
  ConfigFiles files;
  files.encoder["global_rope_theta"] = 160000;
  files.encoder["local_rope_theta"] = 20000.0;
  CHECK(value_of(files.read()).sliding_theta == 20000.0);
  files.encoder["local_rope_theta"] = nullptr;  // the same as the global one
  CHECK(value_of(files.read()).sliding_theta == 160000.0);
}

TEST_CASE("layer types may be listed one by one") {
  ConfigFiles files;
  files.encoder["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                                  "sliding_attention"};
  CHECK(value_of(files.read()).sliding == std::vector<bool>{true, false, false, true});
  files.encoder["layer_types"] = {"full_attention"};
  CHECK(contains(message_of(files.read()), "layer_types"));
  files.encoder["layer_types"] = {"a", "b", "c", "d"};
  CHECK(contains(message_of(files.read()), "full_attention"));
}

TEST_CASE("a missing or illegal field is named with what is allowed") {
  struct Change {
    const char* field;
    json value;
    const char* part;
  };
  const Change changes[] = {
      {"vocab_size", nullptr, "vocab_size is missing, allowed: an integer from 1 to"},
      {"vocab_size", 0, "vocab_size is 0"},
      {"vocab_size", 18446744073709551615U, "vocab_size is 18446744073709551615"},
      {"vocab_size", "many", "vocab_size is \"many\""},
      {"hidden_size", 100, "hidden_size is 100, allowed: a multiple of 64"},
      {"num_attention_heads", 4, "num_attention_heads is 4, allowed: hidden_size / 64"},
      {"intermediate_size", 100, "intermediate_size is 100, allowed: a multiple of 32"},
      {"num_hidden_layers", 0, "num_hidden_layers is 0"},
      {"norm_eps", 1e-6, "norm_eps is 1e-06"},
      {"norm_bias", true, "norm_bias is true, allowed: false"},
      {"attention_bias", true, "attention_bias is true"},
      {"hidden_activation", "relu", "hidden_activation is \"relu\", allowed: \"gelu\""},
      {"model_type", "bert", "model_type is \"bert\""},
      {"local_attention", 0, "local_attention is 0"},
      {"rope_parameters", 3, "rope_parameters is 3, allowed: an object"},
      {"global_rope_theta", -1.0, "global_rope_theta is -1.0"},
  };
  for (const Change& change : changes) {
    ConfigFiles files;
    files.encoder[change.field] = change.value;
    const std::string message = message_of(files.read());
    CAPTURE(message);
    CHECK(contains(message, change.part));
    CHECK(contains(message, "encoder/config.json"));
  }
}

TEST_CASE("RoPE scaling is refused, since it would change the angles") {
  ConfigFiles files;
  files.encoder["rope_parameters"]["full_attention"] = {{"rope_type", "yarn"}, {"rope_theta", 1e4}};
  CHECK(contains(message_of(files.read()), "rope_type \"default\""));
  files.encoder["rope_parameters"]["full_attention"] = {{"rope_theta", "big"}};
  CHECK(contains(message_of(files.read()), "rope_parameters.full_attention.rope_theta is \"big\""));
}

TEST_CASE("the head's settings are checked") {
  ConfigFiles files;
  files.agent.erase("head_layers");
  CHECK(contains(message_of(files.read()), "rl_agent_config.json: head_layers is missing"));
  files.agent["head_layers"] = 0;
  CHECK(contains(message_of(files.read()), "head_layers is 0"));
  files.agent["head_layers"] = 1;
  files.agent["act_costs"] = {1, 2};
  CHECK(contains(message_of(files.read()), "act_costs"));
  files.agent.erase("act_costs");
  CHECK(value_of(files.read()).actions == 1);
}

TEST_CASE("files that are missing, broken or no object are named") {
  const test::TempDir empty;
  CHECK(contains(message_of(read_config(empty.path())), "rl_agent_config.json"));
  std::ofstream(empty.path() / "rl_agent_config.json") << "{\"head_layers\": ";
  CHECK(contains(message_of(read_config(empty.path())), "is not JSON"));
  std::ofstream(empty.path() / "rl_agent_config.json") << "[1]";
  CHECK(contains(message_of(read_config(empty.path())), "does not hold a JSON object"));
}

TEST_CASE("presets have the shapes of the public checkpoints") {
  const Config base = value_of(preset_config("base"));
  CHECK(base.hidden_size == 768);
  CHECK(base.heads() == 12);
  CHECK(base.layers() == 22);
  CHECK(base.intermediate_size == 1152);
  CHECK(base.vocab_size == 256000);
  CHECK(base.sliding_theta == base.full_theta);
  CHECK(std::count(base.sliding.begin(), base.sliding.end(), false) == 8);
  const Config large = value_of(preset_config("large"));
  CHECK(large.heads() == 16);
  CHECK(large.layers() == 28);
  CHECK(large.sliding_theta == 10000.0);
  CHECK(std::count(large.sliding.begin(), large.sliding.end(), false) == 10);
  CHECK(contains(message_of(preset_config("huge")), "tiny, base, large"));
}

}  // namespace laya::model
