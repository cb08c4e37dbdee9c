#include "model/workspace.h"

#include <algorithm>

#include "model/residual.h"

namespace laya::model {
namespace {

// Bytes of the buffer that holds qkv and the insides of the MLPs, and then what the decision's
// kernels leave to each other. Only the gathered rows go through the MLP of the last head layer.
size_t wide_bytes(const Config& config, const ShapeClass& shape, DType dtype) {
  int64_t columns = std::max(3 * config.hidden_size, config.intermediate_size);
  if (config.head_layers > 1) columns = std::max(columns, 4 * config.hidden_size);
  const int64_t elements =
      std::max(shape.tokens * columns, shape.gathered() * 4 * config.hidden_size);
  // CPU: two arrays [gathered, D]. GPUs: units [rows, kActionUnits] and parts [markers, D / 16].
  const int64_t decision = shape.gathered() * std::max(2 * config.hidden_size, kActionUnits);
  return static_cast<size_t>(std::max(elements * size_of(dtype), decision * size_of(DType::kF32)));
}

}  // namespace

WorkspaceLayout::WorkspaceLayout(const Config& config, const Plan& plan, const ShapeClass& shape) {
  size_t next = 0;
  const auto place = [&next](size_t size) {
    constexpr size_t kAlign = 256;
    const size_t offset = next;
    next += (size + kAlign - 1) / kAlign * kAlign;
    return offset;
  };
  const auto array = [&](DType dtype, int64_t elements) {
    return place(static_cast<size_t>(elements) * static_cast<size_t>(size_of(dtype)));
  };
  const DType t = plan.precision.compute, x_dtype = residual_dtype(plan.target, t);
  const auto lower_part = [&](int64_t elements) {
    return array(x_dtype, x_dtype == DType::kF32 ? 0 : elements);
  };
  const int64_t d = config.hidden_size;
  const int64_t gathered = shape.gathered();
  const int64_t most_rows = std::max(shape.tokens, gathered);

  input_bytes = static_cast<size_t>(BatchLayout(shape).elements) * sizeof(int32_t);
  output_bytes = static_cast<size_t>(shape.markers + shape.rows * config.actions) * sizeof(float);
  input = place(input_bytes);
  x = array(x_dtype, shape.tokens * d);
  x_low = lower_part(shape.tokens * d);
  a = array(t, shape.tokens * d);
  h = array(t, plan.folds_norms() ? 0 : most_rows * d);
  moments = array(DType::kF32, moment_floats(most_rows, d));
  scales = array(DType::kF32, most_rows);
  wide = place(wide_bytes(config, shape, t));
  gathered_x = array(x_dtype, gathered * d);
  gathered_x_low = lower_part(gathered * d);
  gathered_a = array(t, gathered * d);
  bytes = next;
}

}  // namespace laya::model
