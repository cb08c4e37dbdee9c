#include <algorithm>
#include <cmath>

#include "tests/templates/harness.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::DType;

constexpr float kEps = 1e-5f;

struct Shape {
  int d, units, actions;
};

/// Logits of all options, row after row, and the action logits of each row.
struct Decision {
  std::vector<float> logits, actions;
};

/// Both kernels of the decision, one after the other.
class Decider {
 public:
  Decider(Harness& on, DType compute, const Shape& shape)
      : on_(on),
        compute_(compute),
        shape_(shape),
        d_(size(shape.d)),
        hidden_op_(model::decision_hidden_op(on.target(), compute, shape.d, shape.units)),
        op_(model::decision_op(on.target(), shape.d, shape.units, shape.actions)),
        w_(folded(random_.values(d_ * d_, -0.1f, 0.1f))),
        bias_(random_.values(d_, -1, 1)),
        out_weight_(random_.values(d_, -0.5f, 0.5f)),
        out_bias_(random_.values(1, -1, 1)),
        action_w_(random_.values(size(shape.units) * (d_ + 4), -0.1f, 0.1f)),
        action_bias_(random_.values(size(shape.units), -1, 1)),
        w2_(random_.values(size(shape.actions) * size(shape.units), -0.2f, 0.2f)),
        b2_(random_.values(size(shape.actions), -1, 1)) {}

  std::vector<model::Op> ops() const { return {hidden_op_, op_}; }

  /// One row for each number of options, which is right, alone and among the others.
  void check(const std::vector<int>& options, float magnitude = 2) {
    size_t markers = 0;
    for (const int count : options) markers += size(count);
    const auto first_tokens = values(options.size(), magnitude),
               marked = values(markers, magnitude);
    const Decision whole = run(first_tokens, marked, options);
    const std::vector<double> logits = expected_logits(marked);
    double largest = 1;  // what cancels in a small logit is as large as the others
    for (const double logit : logits) largest = std::max(largest, std::abs(logit));
    check_close(whole.logits, logits, {2e-5 * largest, 0});
    check_close(whole.actions, expected_actions(first_tokens, whole.logits, options), {1e-5, 1e-5});
    size_t first = 0;
    for (size_t row = 0; row < options.size(); first += size(options[row++])) {
      const size_t count = size(options[row]);
      const Decision alone =
          run(rows_of(first_tokens, row, 1), rows_of(marked, first, count), {options[row]});
      check_same_bits(alone.logits, std::span(whole.logits).subspan(first, count));
      const size_t actions = size(shape_.actions);
      check_same_bits(alone.actions, std::span(whole.actions).subspan(row * actions, actions));
    }
  }

  /// Makes the logits of all options equal.
  void ignore_options() { out_weight_.assign(d_, 0); }
  /// Makes logits so large that softmax is 1 for the largest.
  void exaggerate() {
    for (float& value : out_weight_) value *= 1e4f;
  }

 private:
  static size_t size(int n) { return static_cast<size_t>(n); }

  /// As fold_norm.h leaves a weight: rows with a mean of 0.
  std::vector<float> folded(std::vector<float> w) const {
    for (size_t row = 0; row < d_; ++row) {
      double sum = 0;
      for (size_t i = 0; i < d_; ++i) sum += w[row * d_ + i];
      for (size_t i = 0; i < d_; ++i) w[row * d_ + i] -= static_cast<float>(sum / double(d_));
    }
    return w;
  }

  /// Rows of a residual stream; each third has a mean far from zero.
  std::vector<float> values(size_t rows, float magnitude) {
    std::vector<float> x = random_.values(rows * d_, -magnitude, magnitude);
    for (size_t row = 2; row < rows; row += 3) {
      for (size_t i = 0; i < d_; ++i) x[row * d_ + i] += 5 * magnitude;
    }
    return on_.read(on_.residual(x, compute_));
  }
  std::vector<float> rows_of(const std::vector<float>& x, size_t first, size_t count) const {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first * d_);
    return {begin, begin + static_cast<std::ptrdiff_t>(count * d_)};
  }

  Decision run(const std::vector<float>& first_tokens, const std::vector<float>& marked,
               const std::vector<int>& options) {
    std::vector<float> x = first_tokens;
    x.insert(x.end(), marked.begin(), marked.end());
    std::vector<int> offsets = {0};
    for (const int count : options) offsets.push_back(offsets.back() + count);
    const int rows = static_cast<int>(options.size()), markers = offsets.back();

    const ResidualArray device_x = on_.residual(x, compute_);
    const DeviceArray device_moments =
        on_.floats(reference::moment_array(reference::moments(to_double(x)), rows + markers));
    const DeviceArray w = on_.floats(w_), bias = on_.floats(bias_);
    const DeviceArray out_weight = on_.floats(out_weight_), out_bias = on_.floats(out_bias_);
    const DeviceArray action_w = on_.floats(action_w_), action_bias = on_.floats(action_bias_);
    const DeviceArray w2 = on_.floats(w2_), b2 = on_.floats(b2_);
    const DeviceArray device_offsets = on_.ints(offsets);
    const DeviceArray parts = on_.output(size(markers) * ((d_ + 15) / 16));
    const DeviceArray units = on_.output(size(rows) * size(shape_.units));
    const DeviceArray logits = on_.output(size(markers));
    const DeviceArray actions = on_.output(size(rows) * size(shape_.actions));
    on_.run(hidden_op_, rows + markers, device_x.x, device_x.low(), device_moments, w, bias,
            out_weight, action_w, action_bias, parts, units, kEps, rows, rows + markers);
    on_.run(op_, rows, parts, out_bias, device_offsets, units, action_w, w2, b2, logits, actions,
            rows);
    on_.read(parts);  // their guards
    on_.read(units);
    return {on_.read(logits), on_.read(actions)};
  }

  std::vector<double> expected_logits(const std::vector<float>& marked) const {
    const std::vector<double> ones(d_, 1);
    const auto normed = reference::layer_norm(to_double(marked), ones, {}, kEps);
    return reference::two_layers(normed, to_double(w_), to_double(bias_), to_double(out_weight_),
                                 to_double(out_bias_));
  }

  std::vector<double> expected_actions(const std::vector<float>& first_tokens,
                                       const std::vector<float>& logits,
                                       const std::vector<int>& options) const {
    std::vector<double> inputs;
    size_t first = 0;
    for (size_t row = 0; row < options.size(); first += size(options[row++])) {
      const auto x = rows_of(first_tokens, row, 1);
      inputs.insert(inputs.end(), x.begin(), x.end());
      const auto row_logits = std::span(logits).subspan(first, size(options[row]));
      const auto features = reference::confidence_features(to_double(row_logits));
      inputs.insert(inputs.end(), features.begin(), features.end());
    }
    return reference::two_layers(inputs, to_double(action_w_), to_double(action_bias_),
                                 to_double(w2_), to_double(b2_));
  }

  Harness& on_;
  DType compute_;
  Shape shape_;
  size_t d_;
  model::Op hidden_op_, op_;
  Random random_{9};
  std::vector<float> w_, bias_, out_weight_, out_bias_, action_w_, action_bias_, w2_, b2_;
};

std::vector<Shape> shapes(const Harness& on) {
  std::vector<Shape> shapes = {{96, 20, 3}, {32, 4, 1}};
  if (on.is_thorough()) {
    shapes.insert(shapes.end(), {{768, 256, 2}, {1024, 256, 2}, {1536, 40, 1}, {2080, 300, 5}});
  }
  return shapes;
}

}  // namespace

CUDA_TEST("decision: logits, features and actions, for no option, one and many") {
  std::vector<model::Op> ops;
  for (const DType dtype : on.dtypes()) {
    for (const Shape& shape : shapes(on)) {
      for (const model::Op& op : Decider(on, dtype, shape).ops()) ops.push_back(op);
    }
  }
  on.prepare(ops);
  for (const DType dtype : on.dtypes()) {
    for (const Shape& shape : shapes(on)) {
      CAPTURE(model::to_string(dtype));
      CAPTURE(shape.d);
      Decider decider(on, dtype, shape);
      decider.check({});
      decider.check({3});
      decider.check({0});
      decider.check({1, 0, 4, 2});
      if (shape.d < 1500) decider.check({3, 255, 1, 17, 8, 0, 64, 2, 5});
      decider.check({2, 3}, 300);
    }
  }
}

CUDA_TEST("decision: equal logits and very large ones") {
  for (const DType dtype : on.dtypes()) {
    CAPTURE(model::to_string(dtype));
    Decider equal(on, dtype, {96, 20, 3});
    equal.ignore_options();
    equal.check({1, 16, 33, 255});
    Decider large(on, dtype, {96, 20, 3});
    large.exaggerate();
    large.check({1, 2, 40});
  }
}

}  // namespace laya::test
