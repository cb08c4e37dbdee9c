#include "model/workspace.h"

#include <algorithm>

namespace laya::model {
namespace {

// Elements of the buffer that holds qkv and the insides of the MLPs. Only the gathered rows go
// through the MLP of the last head layer.
int64_t wide_elements(const Config& config, const ShapeClass& shape) {
  int64_t columns = std::max(3 * config.hidden_size, config.intermediate_size);
  if (config.head_layers > 1) columns = std::max(columns, 4 * config.hidden_size);
  return std::max(shape.tokens * columns, shape.gathered() * 4 * config.hidden_size);
}

}  // namespace

WorkspaceLayout::WorkspaceLayout(const Config& config, DType compute, const ShapeClass& shape) {
  size_t next = 0;
  const auto place = [&next](size_t size) {
    constexpr size_t kAlign = 256;
    const size_t offset = next;
    next += (size + kAlign - 1) / kAlign * kAlign;
    return offset;
  };
  const auto typed = [&](int64_t elements) {
    return place(static_cast<size_t>(elements) * static_cast<size_t>(size_of(compute)));
  };
  const auto floats = [&](int64_t elements) {
    return place(static_cast<size_t>(elements) * sizeof(float));
  };
  const int64_t d = config.hidden_size;
  const int64_t gathered = shape.gathered();
  const int64_t most_rows = std::max(shape.tokens, gathered);

  input_bytes = static_cast<size_t>(BatchLayout(shape).elements) * sizeof(int32_t);
  output_bytes = static_cast<size_t>(shape.markers + shape.rows * config.actions) * sizeof(float);
  input = place(input_bytes);
  output = place(output_bytes);
  x = floats(most_rows * d);
  a = typed(shape.tokens * d);
  h = typed(most_rows * d);
  moments = floats(most_rows * (d / 32) * 2);
  scales = floats(most_rows);
  wide = typed(wide_elements(config, shape));
  gathered_x = floats(gathered * d);
  gathered_a = typed(gathered * d);
  bytes = next;
}

}  // namespace laya::model
