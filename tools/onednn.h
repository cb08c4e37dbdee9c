// oneDNN as a yardstick of `laya bench kernels`: opened at run time if it is there, so that nothing
// depends on it. Only what a matrix product needs is declared, from the documented C interface of
// versions 2 and 3.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cache/result.h"
#include "model/dtype.h"

namespace laya::tools {

/// What follows the product, computed by oneDNN's post-ops.
enum class Epilogue : uint8_t {
  kNone,
  kBiasGelu,  ///< gelu(a * w^T + bias), exact GELU
  kResidual,  ///< out + a * w^T, in place
  kGeglu,     ///< gelu(a * u^T) * (a * g^T) with w = [u; g]: two products, the second multiplies
};

struct Product {
  model::DType dtype;  ///< of a and w: fp32 or bf16; the bias is fp32
  int64_t rows, n, k;  ///< a [rows, k], out [rows, n], w [n, k], of kGeglu [2n, k]
  Epilogue epilogue;

  /// The residual stream is fp32 whatever the product's dtype.
  model::DType out_dtype() const {
    return epilogue == Epilogue::kResidual ? model::DType::kF32 : dtype;
  }
  /// Rows of w.
  int64_t weight_rows() const { return epilogue == Epilogue::kGeglu ? 2 * n : n; }
};

/// A product that is ready to run.
class OnednnProduct {
 public:
  virtual ~OnednnProduct() = default;
  /// Computes once and waits. kDeviceError: the library refuses.
  virtual Result<void> run() = 0;
};

/// One thread at a time.
class Onednn {
 public:
  /// `library`: a file, or empty for the installed one. All products run on `threads` threads.
  /// kUnavailable: there is no such library, or none whose threads can be counted (OpenMP).
  static Result<std::unique_ptr<Onednn>> open(const std::string& library, int threads);
  virtual ~Onednn() = default;

  /// "oneDNN 3.2.0"
  virtual std::string name() const = 0;

  /// Lets the library choose the layout of the weight and packs it, once. All arrays are dense and
  /// must outlive the product, `w` need not. kDeviceError: the library refuses.
  virtual Result<std::unique_ptr<OnednnProduct>> prepare(const Product& product, const void* a,
                                                         const void* w, const float* bias,
                                                         void* out) = 0;
};

}  // namespace laya::tools
