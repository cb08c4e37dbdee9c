#include "tests/templates/harness.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

struct Shape {
  int d, units, actions;
};

class ActionHead {
 public:
  ActionHead(Harness& on, const Shape& shape)
      : on_(on),
        shape_(shape),
        op_(model::action_head_op(on.target(), shape.d, shape.units, shape.actions)),
        w1_(random_.values(size(shape.units) * (size(shape.d) + 4), -0.1f, 0.1f)),
        b1_(random_.values(size(shape.units), -1, 1)),
        w2_(random_.values(size(shape.actions) * size(shape.units), -0.2f, 0.2f)),
        b2_(random_.values(size(shape.actions), -1, 1)) {}

  using Rows = std::vector<std::vector<float>>;

  /// One vector of option logits per row.
  void check(const Rows& rows) {
    const std::vector<float> cls = random_.values(rows.size() * size(shape_.d), -2, 2);
    const std::vector<float> out = run(cls, rows);
    check_close(out, expected(cls, rows), {1e-5, 1e-5});
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto begin = cls.begin() + static_cast<std::ptrdiff_t>(row) * shape_.d;
      const std::vector<float> alone = run({begin, begin + shape_.d}, {rows[row]});
      check_same_bits(alone, std::span(out).subspan(row * size(shape_.actions), alone.size()));
    }
  }

  std::vector<float> logits(int count, float scale) {
    return random_.values(size(count), -scale, scale);
  }

 private:
  static size_t size(int n) { return static_cast<size_t>(n); }

  std::vector<float> run(const std::vector<float>& cls, const Rows& rows) {
    std::vector<float> logits;
    std::vector<int> offsets = {0};
    for (const auto& row : rows) {
      logits.insert(logits.end(), row.begin(), row.end());
      offsets.push_back(static_cast<int>(logits.size()));
    }
    const int count = static_cast<int>(rows.size());
    const DeviceArray device_cls = on_.floats(cls);
    const DeviceArray device_logits = on_.floats(logits);
    const DeviceArray device_offsets = on_.ints(offsets),
                      out = on_.output(size(count) * size(shape_.actions));
    const DeviceArray w1 = on_.floats(w1_), b1 = on_.floats(b1_), w2 = on_.floats(w2_),
                      b2 = on_.floats(b2_);
    on_.run(op_, count, device_cls, device_logits, device_offsets, w1, b1, w2, b2, out, count);
    return on_.read(out);
  }

  std::vector<double> expected(const std::vector<float>& cls, const Rows& rows) const {
    std::vector<double> inputs;
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto begin = cls.begin() + static_cast<std::ptrdiff_t>(row) * shape_.d;
      inputs.insert(inputs.end(), begin, begin + shape_.d);
      const auto features = reference::confidence_features(to_double(rows[row]));
      inputs.insert(inputs.end(), features.begin(), features.end());
    }
    return reference::two_layers(inputs, to_double(w1_), to_double(b1_), to_double(w2_),
                                 to_double(b2_));
  }

  Harness& on_;
  Shape shape_;
  model::Op op_;
  Random random_{9};
  std::vector<float> w1_, b1_, w2_, b2_;
};

}  // namespace

CPU_TEST("action_head: features and network, for no option, one, many and extreme logits") {
  for (const Shape& shape : {Shape{768, 256, 2}, {1024, 256, 2}, {72, 20, 3}, {8, 4, 1}}) {
    CAPTURE(shape.d);
    ActionHead head(on, shape);
    const auto few = head.logits(3, 4);
    head.check({});
    head.check({few});
    head.check({{}});
    head.check({few, {}, {0.5f}, head.logits(2, 1), head.logits(255, 8), head.logits(255, 0.01f)});
    head.check({{1e4f, -1e4f}, {-1e4f, 1e4f, 1e4f}, {1e4f}, {-1e4f, -1e4f, -1e4f, -1e4f}});
    head.check({std::vector<float>(16, 0.0f), std::vector<float>(17, 3.0f), head.logits(64, 1e4f),
                head.logits(33, 30)});
  }
}

}  // namespace laya::test
