#include "model/weights.h"

#include <deque>
#include <string>

#include "model/convert.h"
#include "model/fold_norm.h"
#include "model/parallel.h"
#include "model/rope_table.h"
#include "model/upload.h"

namespace laya::model {
namespace {

constexpr size_t kAlign = 256;
constexpr int kBiasThreads = 4;  // a few milliseconds of work for each bias

// Collects what to upload and where the address of each array has to be written afterwards.
class Placer {
 public:
  Placer(const Checkpoint& checkpoint, bool folds_norms)
      : checkpoint_(checkpoint), folds_norms_(folds_norms) {}

  /// `norm_weight`, if there is one, is folded in.
  void matrix(const void*& slot, const std::string& name, const MatrixOp& op,
              std::span<const float> norm_weight = {}) {
    const Tensor& tensor = checkpoint_.tensor(name);
    add(slot, {name, tensor.bytes, tensor.dtype, op.dtype, &op, 0, norm_weight});
  }
  /// A norm and the product behind it; `bias_name` is empty where neither has a bias.
  void normed(NormWeights& norm, const std::string& norm_name, LinearWeights& linear,
              const std::string& name, const std::string& bias_name, const MatrixOp& op) {
    if (!folds_norms_) {
      matrix(linear.weight, name, op);
      fp32(norm.weight, norm_name + ".weight");
      if (bias_name.empty()) return;
      fp32(norm.bias, norm_name + ".bias");
      fp32(linear.bias, bias_name);
      return;
    }
    matrix(linear.weight, name, op, keep(values_of(norm_name + ".weight")));
    if (bias_name.empty()) return;
    std::vector<float> bias = folded_bias(name, norm_name + ".bias", bias_name);
    floats(linear.bias, bias_name, keep(std::move(bias)));
  }
  void table(const void*& slot, const std::string& name, DType to) {
    const Tensor& tensor = checkpoint_.tensor(name);
    add(slot, {name, tensor.bytes, tensor.dtype, to, nullptr, 0});
  }
  void fp32(const void*& slot, const std::string& name) { table(slot, name, DType::kF32); }
  void norm(NormWeights& norm, const std::string& prefix) {
    fp32(norm.weight, prefix + ".weight");
    fp32(norm.bias, prefix + ".bias");
  }
  void linear(LinearWeights& linear, const std::string& prefix, const MatrixOp& op) {
    matrix(linear.weight, prefix + ".weight", op);
    fp32(linear.bias, prefix + ".bias");
  }
  /// The values must stay valid until they are uploaded.
  void floats(const void*& slot, const std::string& name, std::span<const float> values) {
    add(slot, {name, std::as_bytes(values), DType::kF32, DType::kF32, nullptr, 0});
  }

  /// Keeps values until they are uploaded.
  std::span<const float> keep(std::vector<float> values) {
    return kept_.emplace_back(std::move(values));
  }

  size_t bytes() const { return bytes_; }
  std::span<const Upload> uploads() const { return uploads_; }
  void fill_slots(const jit::Buffer& storage) const {
    for (size_t i = 0; i < slots_.size(); ++i) {
      *slots_[i] = storage.as<std::byte>() + uploads_[i].offset;
    }
  }

 private:
  void add(const void*& slot, Upload upload) {
    upload.offset = bytes_;
    bytes_ += (upload.stored_bytes() + kAlign - 1) / kAlign * kAlign;
    slots_.push_back(&slot);
    uploads_.push_back(std::move(upload));
  }

  std::vector<float> values_of(const std::string& name) const {
    const Tensor& tensor = checkpoint_.tensor(name);
    std::vector<float> values(tensor.bytes.size() / static_cast<size_t>(size_of(tensor.dtype)));
    convert(tensor.bytes.data(), tensor.dtype, reinterpret_cast<std::byte*>(values.data()),
            DType::kF32, values.size());
    return values;
  }
  std::vector<float> folded_bias(const std::string& name, const std::string& norm_bias_name,
                                 const std::string& bias_name) const {
    const Tensor& matrix = checkpoint_.tensor(name);
    const std::vector<float> norm_bias = values_of(norm_bias_name);
    std::vector<float> bias = values_of(bias_name);
    const size_t columns = norm_bias.size();
    const size_t row_bytes = columns * static_cast<size_t>(size_of(matrix.dtype));
    parallel_for(bias.size(), kBiasThreads, [&](size_t n) {
      std::vector<float> row(columns);
      convert(matrix.bytes.data() + n * row_bytes, matrix.dtype,
              reinterpret_cast<std::byte*>(row.data()), DType::kF32, columns);
      bias[n] += folded_norm_bias(row, norm_bias);
    });
    return bias;
  }

  const Checkpoint& checkpoint_;
  const bool folds_norms_;
  std::deque<std::vector<float>> kept_;
  std::vector<Upload> uploads_;
  std::vector<const void**> slots_;
  size_t bytes_ = 0;
};

void place_encoder_layer(Placer& placer, const Plan& plan, EncoderLayerWeights& layer,
                         size_t index) {
  const std::string prefix = "encoder.layers." + std::to_string(index);
  if (index == 0) {
    placer.matrix(layer.qkv.weight, prefix + ".attn.Wqkv.weight", plan.qkv);
  } else {
    placer.normed(layer.attn_norm, prefix + ".attn_norm", layer.qkv, prefix + ".attn.Wqkv.weight",
                  "", plan.qkv);
  }
  placer.matrix(layer.attn_out, prefix + ".attn.Wo.weight", plan.attn_out);
  placer.normed(layer.mlp_norm, prefix + ".mlp_norm", layer.mlp_in, prefix + ".mlp.Wi.weight", "",
                plan.mlp_in);
  placer.matrix(layer.mlp_out, prefix + ".mlp.Wo.weight", plan.mlp_out);
}

void place_head_layer(Placer& placer, const Plan& plan, HeadLayerWeights& layer, size_t index) {
  const std::string prefix = "head.layers." + std::to_string(index);
  const std::string qkv = prefix + ".self_attn.in_proj_weight";
  const std::string qkv_bias = prefix + ".self_attn.in_proj_bias";
  if (index == 0) {  // its norm is part of the encoder's last
    placer.norm(layer.norm1, prefix + ".norm1");
    placer.matrix(layer.qkv.weight, qkv, plan.head_qkv);
    placer.fp32(layer.qkv.bias, qkv_bias);
  } else {
    placer.normed(layer.norm1, prefix + ".norm1", layer.qkv, qkv, qkv_bias, plan.head_qkv);
  }
  placer.linear(layer.attn_out, prefix + ".self_attn.out_proj", plan.attn_out);
  placer.normed(layer.norm2, prefix + ".norm2", layer.mlp_in, prefix + ".linear1.weight",
                prefix + ".linear1.bias", plan.head_mlp_in);
  placer.linear(layer.mlp_out, prefix + ".linear2", plan.head_mlp_out);
}

void place_all(Placer& placer, const Plan& plan, const Config& config, Weights& weights) {
  placer.table(weights.embedding, "encoder.embeddings.tok_embeddings.weight", plan.precision.table);
  placer.fp32(weights.embedding_norm, "encoder.embeddings.norm.weight");
  weights.encoder.resize(static_cast<size_t>(config.layers()));
  for (size_t i = 0; i < weights.encoder.size(); ++i) {
    place_encoder_layer(placer, plan, weights.encoder[i], i);
  }
  placer.fp32(weights.final_norm, "encoder.final_norm.weight");
  placer.fp32(weights.type_embedding, "type_emb.weight");
  weights.head.resize(static_cast<size_t>(config.head_layers));
  for (size_t i = 0; i < weights.head.size(); ++i) {
    place_head_layer(placer, plan, weights.head[i], i);
  }
  placer.normed(weights.scorer_norm, "scorer.0", weights.scorer_hidden, "scorer.1.weight",
                "scorer.1.bias", plan.scorer_hidden);
  placer.fp32(weights.scorer_out.weight, "scorer.3.weight");
  placer.fp32(weights.scorer_out.bias, "scorer.3.bias");
  placer.fp32(weights.action_hidden.weight, "act_head.0.weight");
  placer.fp32(weights.action_hidden.bias, "act_head.0.bias");
  placer.fp32(weights.action_out.weight, "act_head.2.weight");
  placer.fp32(weights.action_out.bias, "act_head.2.bias");
}

void place_rope(Placer& placer, const Plan& plan, const HostRopeTable& host, const char* name,
                RopeTable& table) {
  if (plan.rope.variants.empty()) {
    placer.floats(table.angles, std::string(name) + " angles", placer.keep(interleaved(host)));
    return;
  }
  placer.floats(table.cos, std::string(name) + " cosines", host.cos);
  placer.floats(table.sin, std::string(name) + " sines", host.sin);
}

}  // namespace

Result<Weights> load_weights(const Checkpoint& checkpoint, const Plan& plan, jit::Device& device,
                             jit::Engine& engine, const std::function<void()>& before_upload) {
  const Config& config = checkpoint.config;
  const bool one_base = config.full_theta == config.sliding_theta;
  const HostRopeTable full = make_rope_table(config.full_theta, kHeadDim, config.max_positions);
  const HostRopeTable sliding =
      one_base ? HostRopeTable{}
               : make_rope_table(config.sliding_theta, kHeadDim, config.max_positions);
  Weights weights;
  Placer placer(checkpoint, plan.folds_norms());
  place_all(placer, plan, config, weights);
  place_rope(placer, plan, full, "full rope", weights.full_rope);
  if (!one_base) place_rope(placer, plan, sliding, "sliding rope", weights.sliding_rope);

  before_upload();
  LAYA_ASSIGN(weights.storage, device.allocate(placer.bytes()));
  placer.fill_slots(weights.storage);
  if (one_base) weights.sliding_rope = weights.full_rope;
  LAYA_TRY(upload_all(placer.uploads(), weights.storage, device, engine));
  return weights;
}

}  // namespace laya::model
