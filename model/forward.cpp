#include "model/forward.h"

#include "model/workspace.h"

namespace laya::model {
namespace {

// What a product that folds a norm needs of its rows. Without either they are normalized already.
struct RowNorms {
  const float* scales = nullptr;
  const float* moments = nullptr;
};

// x, and its lower part or null; see model/ops.h.
struct ResidualStream {
  void* x;
  void* low;
};

// One pass over one batch. Steps leave what the next one reads in the buffers named in
// model/workspace.h.
class Forward {
 public:
  Forward(const ForwardModel& model, const ShapeClass& shape, std::byte* workspace, float* output,
          jit::Stream& stream)
      : config_(model.config),
        loaded_(model.plan),
        plan_(model.plan.plan()),
        weights_(model.weights),
        shape_(shape),
        stream_(stream),
        batch_(shape),
        logits_(output),
        actions_(output + shape.markers),
        tokens_(static_cast<int32_t>(shape.tokens)),
        gathered_(static_cast<int32_t>(shape.gathered())) {
    const WorkspaceLayout layout(config_, plan_, shape);
    input_ = reinterpret_cast<const int32_t*>(workspace + layout.input);
    const bool is_split = residual_dtype(plan_.target, plan_.precision.compute) != DType::kF32;
    const auto low = [&](size_t offset) { return is_split ? workspace + offset : nullptr; };
    x_ = {workspace + layout.x, low(layout.x_low)};
    a_ = workspace + layout.a;
    normed_ = workspace + layout.h;
    moments_ = reinterpret_cast<float*>(workspace + layout.moments);
    scales_ = reinterpret_cast<float*>(workspace + layout.scales);
    wide_ = workspace + layout.wide;
    gathered_x_ = {workspace + layout.gathered_x, low(layout.gathered_x_low)};
    gathered_a_ = workspace + layout.gathered_a;
  }

  Result<void> run() {
    LAYA_TRY(embed());
    for (size_t i = 0; i < weights_.encoder.size(); ++i) LAYA_TRY(encoder_layer(i));
    LAYA_TRY(enter_head());
    for (size_t i = 0; i + 1 < weights_.head.size(); ++i) LAYA_TRY(head_layer(i));
    LAYA_TRY(last_head_layer());
    return decide();
  }

 private:
  Result<void> embed() {
    h_ = a_;
    return loaded_.launch(stream_, plan_.embed_norm, tokens_, input_ + batch_.ids,
                          weights_.embedding, weights_.embedding_norm, x_.x, x_.low, a_, kNormEps,
                          tokens_);
  }

  Result<void> encoder_layer(size_t index) {
    const EncoderLayerWeights& layer = weights_.encoder[index];
    // Layer 0 has no norm: the embedding's norm has just been applied.
    if (index > 0) LAYA_TRY(norm(layer.attn_norm, x_, tokens_));
    const bool sliding = config_.sliding[index];
    LAYA_TRY(rotated_qkv(layer.qkv, sliding ? weights_.sliding_rope : weights_.full_rope));
    LAYA_TRY(sliding ? attend(plan_.sliding_attention, batch_.sliding_tiles, shape_.sliding_tiles)
                     : attend(plan_.full_attention, batch_.full_tiles, shape_.full_tiles));
    LAYA_TRY(end_branch(plan_.attn_out, a_, {layer.attn_out}, x_, tokens_));

    LAYA_TRY(norm(layer.mlp_norm, x_, tokens_));
    LAYA_TRY(gated(layer.mlp_in));
    return end_branch(plan_.mlp_out, wide_, {layer.mlp_out}, x_, tokens_);
  }

  // Ends the encoder: final norm, type embedding and the first norm of the head in one kernel.
  Result<void> enter_head() {
    const NormWeights& norm1 = weights_.head.front().norm1;
    h_ = a_;
    h_norms_ = {};
    return loaded_.launch(stream_, plan_.final_norm, tokens_, x_.x, x_.low, weights_.final_norm,
                          weights_.type_embedding, input_ + batch_.types, norm1.weight, norm1.bias,
                          a_, kNormEps, tokens_);
  }

  // Expects the layer's norm1 done; does that of the next layer.
  Result<void> head_layer(size_t index) {
    const HeadLayerWeights& layer = weights_.head[index];
    LAYA_TRY(head_attention(layer, batch_.full_tiles, shape_.full_tiles));
    LAYA_TRY(head_mlp(layer, a_, x_, tokens_));
    return norm(weights_.head[index + 1].norm1, x_, tokens_);
  }

  // Of the last layer's output only the first token of each row and the markers are read, so the
  // attention is done for tiles with such a row alone, and all that follows for these rows.
  Result<void> last_head_layer() {
    const HeadLayerWeights& layer = weights_.head.back();
    LAYA_TRY(head_attention(layer, batch_.last_tiles, shape_.last_tiles));
    LAYA_TRY(loaded_.launch(stream_, plan_.gather_rows, gathered_, input_ + batch_.gather, a_, x_.x,
                            x_.low, gathered_a_, gathered_x_.x, gathered_x_.low, gathered_));
    return head_mlp(layer, gathered_a_, gathered_x_, gathered_);
  }

  Result<void> head_attention(const HeadLayerWeights& layer, int64_t tiles_offset, int64_t tiles) {
    LAYA_TRY(product(plan_.head_qkv, h_, h_norms_, layer.qkv, wide_, tokens_));
    return attend(plan_.full_attention, tiles_offset, tiles);
  }

  // From the output of attention to the end of the MLP, over `rows` rows.
  Result<void> head_mlp(const HeadLayerWeights& layer, const void* attended,
                        const ResidualStream& x, int32_t rows) {
    LAYA_TRY(end_branch(plan_.attn_out, attended, layer.attn_out, x, rows));
    LAYA_TRY(norm(layer.norm2, x, rows));
    LAYA_TRY(product(plan_.head_mlp_in, h_, h_norms_, layer.mlp_in, wide_, rows));
    return end_branch(plan_.head_mlp_out, wide_, layer.mlp_out, x, rows);
  }

  // Scorer and action head. Rows of first tokens come before those of markers.
  Result<void> decide() {
    if (!plan_.decision.variants.empty()) return decide_at_once();
    auto* const normed = static_cast<float*>(wide_);
    float* const hidden = normed + int64_t{gathered_} * config_.hidden_size;
    LAYA_TRY(loaded_.launch(stream_, plan_.scorer_norm, gathered_, gathered_x_.x,
                            weights_.scorer_norm.weight, weights_.scorer_norm.bias, normed,
                            kNormEps, gathered_));
    const int64_t first_marker = shape_.rows * config_.hidden_size;
    const auto markers = static_cast<int32_t>(shape_.markers);
    const auto rows = static_cast<int32_t>(shape_.rows);
    LAYA_TRY(product(plan_.scorer_hidden, normed + first_marker, {}, weights_.scorer_hidden, hidden,
                     markers));
    LAYA_TRY(loaded_.launch(stream_, plan_.score, markers, hidden, weights_.scorer_out.weight,
                            weights_.scorer_out.bias, logits_, markers));
    return loaded_.launch(stream_, plan_.action_head, rows, gathered_x_.x, logits_,
                          input_ + batch_.marker_offsets, weights_.action_hidden.weight,
                          weights_.action_hidden.bias, weights_.action_out.weight,
                          weights_.action_out.bias, actions_, rows);
  }

  // The same on GPUs.
  Result<void> decide_at_once() {
    auto* const units = static_cast<float*>(wide_);
    float* const parts = units + shape_.rows * kActionUnits;
    const auto rows = static_cast<int32_t>(shape_.rows);
    LAYA_TRY(loaded_.launch(stream_, plan_.decision_hidden, gathered_, gathered_x_.x,
                            gathered_x_.low, moments_, weights_.scorer_hidden.weight,
                            weights_.scorer_hidden.bias, weights_.scorer_out.weight,
                            weights_.action_hidden.weight, weights_.action_hidden.bias, parts,
                            units, kNormEps, rows, gathered_));
    return loaded_.launch(stream_, plan_.decision, rows, parts, weights_.scorer_out.bias,
                          input_ + batch_.marker_offsets, units, weights_.action_hidden.weight,
                          weights_.action_out.weight, weights_.action_out.bias, logits_, actions_,
                          rows);
  }

  // A norm of a layer, over rows of x.
  Result<void> norm(const NormWeights& weights, const ResidualStream& x, int32_t rows) {
    if (!plan_.folds_norms()) {
      h_ = normed_;
      return loaded_.launch(stream_, plan_.norm, rows, x.x, weights.weight, weights.bias, normed_,
                            kNormEps, rows);
    }
    h_ = x.x;
    h_norms_ = {nullptr, moments_};
    if (rows < kRowScalesFrom) return {};
    h_norms_ = {scales_, nullptr};
    return loaded_.launch(stream_, plan_.row_scales, rows, moments_, scales_, kNormEps, rows);
  }

  Result<void> product(const MatrixOp& op, const void* a, const RowNorms& norms,
                       const LinearWeights& linear, void* out, int32_t rows) {
    if (!plan_.folds_norms()) {
      return loaded_.launch(stream_, op.multiply, rows, a, linear.weight, linear.bias, out, rows);
    }
    return loaded_.launch(stream_, op.multiply, rows, a, linear.weight, linear.bias, norms.scales,
                          norms.moments, out, kNormEps, rows);
  }

  // wide = the inside of an encoder's MLP.
  Result<void> gated(const LinearWeights& linear) {
    const Op& multiply = plan_.mlp_in.multiply;
    if (!plan_.folds_norms()) {
      return loaded_.launch(stream_, multiply, tokens_, h_, linear.weight, wide_, tokens_);
    }
    return loaded_.launch(stream_, multiply, tokens_, h_, linear.weight, h_norms_.scales,
                          h_norms_.moments, wide_, kNormEps, tokens_);
  }

  // wide = q, k and v of h with q and k rotated.
  Result<void> rotated_qkv(const LinearWeights& linear, const RopeTable& table) {
    const int32_t* const positions = input_ + batch_.positions;
    if (plan_.rope.variants.empty()) {
      return loaded_.launch(stream_, plan_.qkv.multiply, tokens_, h_, linear.weight, table.angles,
                            positions, h_norms_.scales, h_norms_.moments, wide_, kNormEps, tokens_);
    }
    LAYA_TRY(product(plan_.qkv, h_, h_norms_, linear, wide_, tokens_));
    return loaded_.launch(stream_, plan_.rope, tokens_, wide_, table.cos, table.sin, positions,
                          tokens_);
  }

  // The last product of a branch of the residual stream x: adds to it, and prepares the next norm
  // where that is folded.
  Result<void> end_branch(const MatrixOp& op, const void* a, const LinearWeights& linear,
                          const ResidualStream& x, int32_t rows) {
    if (!plan_.folds_norms()) {
      return loaded_.launch(stream_, op.multiply, rows, a, linear.weight, linear.bias, x.x, rows);
    }
    return loaded_.launch(stream_, op.multiply, rows, a, linear.weight, linear.bias, x.x, x.low,
                          x.x, x.low, moments_, rows);
  }

  // a = attention of qkv in the wide buffer.
  Result<void> attend(const Op& op, int64_t tiles_offset, int64_t tiles) {
    return loaded_.launch_tiles(stream_, op, tokens_, tiles, wide_, a_, input_ + batch_.cu_seqlens,
                                input_ + tiles_offset, static_cast<int32_t>(tiles));
  }

  const Config& config_;
  const LoadedPlan& loaded_;
  const Plan& plan_;
  const Weights& weights_;
  const ShapeClass& shape_;
  jit::Stream& stream_;
  const BatchLayout batch_;
  float* const logits_;
  float* const actions_;
  const int32_t tokens_;
  const int32_t gathered_;

  const int32_t* input_;
  ResidualStream x_;
  void* a_;
  void* normed_;
  const void* h_;  // what the next product of the stream reads: x, or a norm of it
  float* moments_;
  float* scales_;
  RowNorms h_norms_;
  void* wide_;
  ResidualStream gathered_x_;
  void* gathered_a_;
};

}  // namespace

TileSizes tile_sizes(const Plan& plan, int64_t tokens) {
  const auto size = [&](const Op& op) {
    return op.variants.empty() ? 1 : op.choose(tokens).rule.rows_per_block;
  };
  return {size(plan.full_attention), size(plan.sliding_attention)};
}

Result<void> run_forward(const ForwardModel& model, const ShapeClass& shape, std::byte* workspace,
                         float* output, jit::Stream& stream) {
  return Forward(model, shape, workspace, output, stream).run();
}

}  // namespace laya::model
