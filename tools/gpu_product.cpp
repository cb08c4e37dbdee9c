#include "tools/gpu_product.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "model/config.h"
#include "model/convert.h"
#include "model/residual.h"

namespace laya::tools {
namespace {

using model::DType;
using model::kNormEps;

double geglu(double u, double g) {
  return 0.5 * u * std::erfc(-u / std::sqrt(2.0)) * g;
}

/// By which a norm's results are multiplied before they are rounded: residual.cuh.
float norm_unit(DType dtype) {
  return dtype == DType::kF16 ? 16 : 1;
}

}  // namespace

Result<GpuProduct> GpuProduct::create(GpuBench& gpu, const ProductCase& product, int64_t rows) {
  GpuProduct result(gpu, product, rows);
  const auto count = static_cast<size_t>(rows);
  LAYA_ASSIGN(result.positions_, gpu.integers(std::vector<int32_t>(count, 7)));
  // Moments with which a norm changes nothing but the unit of fp16 (moments.cuh); or room for those
  // that a product leaves.
  const int64_t floats = model::moment_floats(rows, std::max(product.k, product.n));
  std::vector<int32_t> moments(static_cast<size_t>(floats), 0);
  for (size_t i = 1; i < moments.size(); i += 2) {
    moments[i] = std::bit_cast<int32_t>(32 * (1 - kNormEps));
  }
  LAYA_ASSIGN(result.moments_, gpu.integers(moments));
  if (rows >= model::kRowScalesFrom) {
    const auto scale = std::bit_cast<int32_t>(norm_unit(gpu.dtype()));
    LAYA_ASSIGN(result.scales_, gpu.integers(std::vector<int32_t>(count, scale)));
  }
  return result;
}

Result<void> GpuProduct::launch(const model::Variant& variant, size_t set) const {
  const ProductCase& p = product_;
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count * 2); };
  void* const a = gpu_->activations(set, bytes(rows_ * p.k));
  void* const w = gpu_->weights(set, bytes(p.w_rows() * p.k));
  void* const out = gpu_->results(set, out_bytes());
  void* const floats = gpu_->floats(0, bytes(2 * p.n));
  const auto count = static_cast<int32_t>(rows_);
  switch (p.epilogue) {
    case Epilogue::kResidual: {
      void* const no_bias = nullptr;
      const auto [x, x_low] = gpu_->residual(set, out_bytes());
      return gpu_->launch(variant, rows_, a, w, no_bias, x, x_low, x, x_low, moments_, count);
    }
    case Epilogue::kGeglu:
      return gpu_->launch(variant, rows_, a, w, scales_, moments_, out, kNormEps, count);
    case Epilogue::kRope:
      return gpu_->launch(variant, rows_, a, w, floats, positions_, scales_, moments_, out,
                          kNormEps, count);
    case Epilogue::kBias:
    case Epilogue::kBiasRelu: break;
  }
  return gpu_->launch(variant, rows_, a, w, floats, scales_, moments_, out, kNormEps, count);
}

/// What an element becomes, or what is added to it.
double GpuProduct::expected(const std::vector<float>& blas, const std::vector<float>& bias,
                            int64_t row, int64_t column) const {
  const double unit = is_residual() ? 1 : norm_unit(gpu_->dtype());
  const auto product = [&](int64_t w_row) {
    return blas[static_cast<size_t>(row * product_.w_rows() + w_row)] * unit;
  };
  const double u = product(column);
  switch (product_.epilogue) {
    case Epilogue::kResidual: return u;
    case Epilogue::kGeglu: return geglu(u, product(product_.n + column));
    case Epilogue::kBiasRelu: return std::max(u + bias[static_cast<size_t>(column)], 0.0);
    case Epilogue::kBias:
    case Epilogue::kRope: break;
  }
  return u + bias[static_cast<size_t>(column)];
}

Result<void> GpuProduct::check(const model::Variant& variant, const QueueRun& blas) const {
  if (product_.epilogue == Epilogue::kRope) return {};
  const int64_t rows = std::min<int64_t>(rows_, 8);
  std::vector<float> before(static_cast<size_t>(rows * product_.n), 0);
  if (is_residual()) {
    LAYA_ASSIGN(before, read_results(rows * product_.n));
  }
  LAYA_TRY(launch(variant, 0));
  LAYA_TRY(blas(0));
  LAYA_ASSIGN(const auto ours, read_results(rows * product_.n));
  LAYA_ASSIGN(const auto theirs, read_elements(gpu_->more_results(0, 1), rows * product_.w_rows()));
  LAYA_ASSIGN(const auto bias, read_floats(gpu_->floats(0, 1), product_.n));
  double difference = 0, norm = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < product_.n; ++column) {
      const auto at = static_cast<size_t>(row * product_.n + column);
      const double wanted = expected(theirs, bias, row, column);
      const double error = static_cast<double>(ours[at]) - before[at] - wanted;
      difference += error * error;
      norm += wanted * wanted;
    }
  }
  constexpr double kLimit = 1e-2;
  if (std::sqrt(difference / norm) <= kLimit) return {};  // never true of NaN
  return fail(ErrorKind::kInternal,
              variant.spec.to_string() + " and cuBLASLt differ by more than rounding");
}

Result<std::vector<float>> GpuProduct::read_floats(const void* data, int64_t count) const {
  std::vector<float> values(static_cast<size_t>(count));
  LAYA_TRY(gpu_->copy_back(values.data(), data, values.size() * 4));
  return values;
}

Result<std::vector<uint16_t>> GpuProduct::read_bits(const void* data, int64_t count) const {
  std::vector<uint16_t> bits(static_cast<size_t>(count));
  LAYA_TRY(gpu_->copy_back(bits.data(), data, bits.size() * 2));
  return bits;
}

Result<std::vector<float>> GpuProduct::read_elements(const void* data, int64_t count) const {
  LAYA_ASSIGN(const auto bits, read_bits(data, count));
  std::vector<float> values;
  for (const uint16_t x : bits) {
    values.push_back(gpu_->dtype() == DType::kBF16 ? model::bf16_to_float(x)
                                                   : model::fp16_to_float(x));
  }
  return values;
}

Result<std::vector<float>> GpuProduct::read_results(int64_t count) const {
  if (!is_residual()) return read_elements(gpu_->results(0, out_bytes()), count);
  const auto [x, x_low] = gpu_->residual(0, out_bytes());
  LAYA_ASSIGN(const auto upper, read_bits(x, count));
  LAYA_ASSIGN(const auto lower, read_bits(x_low, count));
  std::vector<float> values;
  for (size_t i = 0; i < upper.size(); ++i) {
    values.push_back(model::join_residual({upper[i], lower[i]}, gpu_->dtype()));
  }
  return values;
}

}  // namespace laya::tools
