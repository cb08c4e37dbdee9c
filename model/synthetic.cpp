#include "model/synthetic.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "model/convert.h"
#include "model/layout.h"
#include "model/random.h"

namespace laya::model {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kChunk = size_t{1} << 20;  // elements written at once

// Numbers of one tensor: offset + scale * normal.
struct Fill {
  float offset;
  float scale;
};

// 1 keeps the variance from a layer's input to its output. Attention is made sharper, so that equal
// tokens at different places come out different, and the options' logits larger, so that the
// options of a question get clearly different probabilities.
float gain_of(const std::string& name) {
  if (name.ends_with("Wqkv.weight") || name.ends_with("in_proj_weight")) return 1.25F;
  return name == "scorer.3.weight" ? 4.0F : 1.0F;
}

Fill fill_of(const TensorSpec& spec) {
  switch (spec.role) {
    case TensorRole::kEmbedding: return {0.0F, 0.5F};
    case TensorRole::kNormWeight: return {1.0F, 0.125F};
    case TensorRole::kBias: return {0.0F, 0.0625F};
    case TensorRole::kTemperature: return {1.0F, 0.0F};
    case TensorRole::kMatrix: break;
  }
  return {0.0F, gain_of(spec.name) / std::sqrt(static_cast<float>(spec.shape.back()))};
}

int64_t element_count(const TensorSpec& spec) {
  int64_t count = 1;
  for (const int64_t size : spec.shape) count *= size;
  return count;
}

// Length field and header, padded with spaces so that the data is aligned to 8 bytes.
std::string safetensors_header(const std::vector<TensorSpec>& layout) {
  Json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const TensorSpec& spec : layout) {
    const int64_t end = offset + element_count(spec) * size_of(DType::kF16);
    header[spec.name] = {{"dtype", "F16"}, {"shape", spec.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return length + text;
}

// A file being written; the first failure is kept and reported by finish().
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path)
      : path_(path), stream_(path, std::ios::binary | std::ios::trunc) {}

  void write(const void* data, size_t bytes) {
    stream_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  }
  bool good() const { return stream_.good(); }

  Result<void> finish() {
    stream_.close();
    if (stream_.good()) return {};
    return fail(ErrorKind::kBadInput,
                "cannot write " + path_.string() + ": " + std::strerror(errno));
  }

 private:
  std::filesystem::path path_;
  std::ofstream stream_;
};

Result<void> write_text(const std::filesystem::path& path, const std::string& text) {
  OutputFile file(path);
  file.write(text.data(), text.size());
  return file.finish();
}

Json agent_json(const Config& config) {
  Json costs = Json::object();
  for (int64_t i = 1; i < config.actions; ++i) {
    costs[i == 1 ? "escalate" : "action_" + std::to_string(i)] = 0.5;
  }
  return {{"encoder", "synthetic"},
          {"model_name", "synthetic"},
          {"head_layers", config.head_layers},
          {"max_len", 1024},
          {"head_max_len", 256},
          {"act_costs", costs},
          {"amp_dtype", "bf16"},
          {"temperature", {1.0, 1.0, 1.0}},
          {"temperature_by_options", Json::object()}};
}

Json rope_json(double theta) {
  return {{"rope_type", "default"}, {"rope_theta", theta}};
}

Json encoder_json(const Config& config) {
  Json types = Json::array();
  for (const bool sliding : config.sliding) {
    types.push_back(sliding ? "sliding_attention" : "full_attention");
  }
  return {{"architectures", {"ModernBertModel"}},
          {"model_type", "modernbert"},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_hidden_layers", config.layers()},
          {"num_attention_heads", config.heads()},
          {"max_position_embeddings", config.max_positions},
          {"hidden_activation", "gelu"},
          {"norm_eps", 1e-5},
          {"norm_bias", false},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"local_attention", 2 * config.window},
          {"layer_types", types},
          {"rope_parameters",
           {{"full_attention", rope_json(config.full_theta)},
            {"sliding_attention", rope_json(config.sliding_theta)}}},
          {"pad_token_id", 0},
          {"bos_token_id", 2},
          {"eos_token_id", 1},
          {"cls_token_id", 1},
          {"sep_token_id", 1}};
}

Result<void> write_weights(const std::filesystem::path& path, const Config& config,
                           const SyntheticOptions& options) {
  const auto layout = tensor_layout(config);
  int64_t total = 0;
  for (const TensorSpec& spec : layout) total += element_count(spec) * size_of(DType::kF16);

  OutputFile file(path);
  const std::string header = safetensors_header(layout);
  file.write(header.data(), header.size());
  std::vector<uint16_t> chunk;
  int64_t done = 0;
  for (size_t t = 0; t < layout.size() && file.good(); ++t) {
    const Fill fill = fill_of(layout[t]);
    const auto count = static_cast<size_t>(element_count(layout[t]));
    for (size_t begin = 0; begin < count && file.good(); begin += kChunk) {
      chunk.resize(std::min(kChunk, count - begin));
      for (size_t i = 0; i < chunk.size(); ++i) {
        const float value = random_normal(options.seed, t, begin + i, fill.offset, fill.scale);
        chunk[i] = float_to_fp16(value);
      }
      file.write(chunk.data(), chunk.size() * sizeof(uint16_t));
      done += static_cast<int64_t>(chunk.size() * sizeof(uint16_t));
      if (options.on_progress) options.on_progress(done, total);
    }
  }
  return file.finish();
}

}  // namespace

Result<void> write_synthetic_checkpoint(const std::filesystem::path& directory,
                                        const Config& config, const SyntheticOptions& options) {
  std::error_code status;
  std::filesystem::create_directories(directory / "encoder", status);
  if (status) {
    return fail(ErrorKind::kBadInput,
                "cannot create " + (directory / "encoder").string() + ": " + status.message());
  }
  LAYA_TRY(write_text(directory / "rl_agent_config.json", agent_json(config).dump(2) + "\n"));
  LAYA_TRY(write_text(directory / "encoder" / "config.json", encoder_json(config).dump(2) + "\n"));
  LAYA_ASSIGN(const Config written, read_config(directory));
  if (written != config) {
    return fail(ErrorKind::kBadInput, "this configuration cannot be written as a checkpoint");
  }
  return write_weights(directory / "model.safetensors", config, options);
}

}  // namespace laya::model
