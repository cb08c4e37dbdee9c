#include "tests/templates/harness.h"
#include "tests/templates/reference.h"

namespace laya::test {

CPU_TEST("score: one dot product per row, the same alone and in a batch") {
  Random random(3);
  for (const int d : {8, 72, 768, 1024}) {
    CAPTURE(d);
    const model::Op op = model::score_op(on.target(), d);
    const size_t width = static_cast<size_t>(d);
    const std::vector<float> weight = random.values(width, -0.1f, 0.1f), bias = {0.25f};
    const std::vector<float> h = random.values(130 * width, -2, 2);
    const DeviceArray device_h = on.floats(h), device_weight = on.floats(weight);
    const DeviceArray device_bias = on.floats(bias);
    const std::vector<int64_t> only_column = {0};
    const std::vector<double> expected =
        reference::product(to_double(h), to_double(weight), to_double(bias), d, only_column);
    const auto run = [&](size_t first, int n) {
      const DeviceArray logits = on.output(static_cast<size_t>(n));
      on.run(op, n, device_h.at(first * width), device_weight, device_bias, logits, n);
      return on.read(logits);
    };
    const std::vector<float> whole = run(0, 130);
    check_close(whole, expected, {4e-6, 4e-6});
    for (const int n : {0, 1, 2, 7, 64, 65}) {
      check_same_bits(run(0, n), std::span(whole).first(static_cast<size_t>(n)));
    }
    check_same_bits(run(77, 1), std::span(whole).subspan(77, 1));
  }
}

}  // namespace laya::test
