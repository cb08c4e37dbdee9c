#include "model/layout.h"

namespace laya::model {
namespace {

class Layout {
 public:
  void add(std::string name, std::vector<int64_t> shape, TensorRole role) {
    tensors_.push_back({std::move(name), std::move(shape), role});
  }
  void matrix(const std::string& name, int64_t n, int64_t k) {
    add(name, {n, k}, TensorRole::kMatrix);
  }
  void norm_weight(const std::string& name, int64_t size) {
    add(name, {size}, TensorRole::kNormWeight);
  }
  void norm(const std::string& prefix, int64_t size) {
    norm_weight(prefix + ".weight", size);
    add(prefix + ".bias", {size}, TensorRole::kBias);
  }
  void linear(const std::string& prefix, int64_t n, int64_t k) {
    matrix(prefix + ".weight", n, k);
    add(prefix + ".bias", {n}, TensorRole::kBias);
  }
  std::vector<TensorSpec> finish() && { return std::move(tensors_); }

 private:
  std::vector<TensorSpec> tensors_;
};

void add_encoder_layer(Layout& layout, const Config& config, int64_t index) {
  const int64_t d = config.hidden_size;
  const std::string prefix = "encoder.layers." + std::to_string(index);
  if (index > 0) layout.norm_weight(prefix + ".attn_norm.weight", d);
  layout.matrix(prefix + ".attn.Wqkv.weight", 3 * d, d);
  layout.matrix(prefix + ".attn.Wo.weight", d, d);
  layout.norm_weight(prefix + ".mlp_norm.weight", d);
  layout.matrix(prefix + ".mlp.Wi.weight", 2 * config.intermediate_size, d);
  layout.matrix(prefix + ".mlp.Wo.weight", d, config.intermediate_size);
}

void add_head_layer(Layout& layout, const Config& config, int64_t index) {
  const int64_t d = config.hidden_size;
  const std::string prefix = "head.layers." + std::to_string(index);
  // torch names these two with an underscore.
  layout.matrix(prefix + ".self_attn.in_proj_weight", 3 * d, d);
  layout.add(prefix + ".self_attn.in_proj_bias", {3 * d}, TensorRole::kBias);
  layout.linear(prefix + ".self_attn.out_proj", d, d);
  layout.linear(prefix + ".linear1", 4 * d, d);
  layout.linear(prefix + ".linear2", d, 4 * d);
  layout.norm(prefix + ".norm1", d);
  layout.norm(prefix + ".norm2", d);
}

}  // namespace

std::vector<TensorSpec> tensor_layout(const Config& config) {
  const int64_t d = config.hidden_size;
  Layout layout;
  layout.add("encoder.embeddings.tok_embeddings.weight", {config.vocab_size, d},
             TensorRole::kEmbedding);
  layout.norm_weight("encoder.embeddings.norm.weight", d);
  for (int64_t i = 0; i < config.layers(); ++i) add_encoder_layer(layout, config, i);
  layout.norm_weight("encoder.final_norm.weight", d);
  for (int64_t i = 0; i < config.head_layers; ++i) add_head_layer(layout, config, i);
  layout.add("type_emb.weight", {kQuestionTypes, d}, TensorRole::kEmbedding);
  layout.norm("scorer.0", d);
  layout.linear("scorer.1", d, d);
  layout.linear("scorer.3", 1, d);
  layout.linear("act_head.0", kActionUnits, d + kActionFeatures);
  layout.linear("act_head.2", config.actions, kActionUnits);
  layout.add("temperature", {kQuestionTypes}, TensorRole::kTemperature);
  return std::move(layout).finish();
}

}  // namespace laya::model
