// OpenBLAS as a yardstick of `laya bench kernels`, opened at run time if it is there.
#pragma once

#include <cstdint>
#include <string>

#include "cache/result.h"

namespace laya::tools {

class Openblas {
 public:
  /// kUnavailable: there is no such library.
  static Result<Openblas> open(int threads);

  /// out[rows, n] = a[rows, k] * w[n, k]^T, all dense and fp32.
  void multiply(const float* a, const float* w, float* out, int64_t rows, int64_t n,
                int64_t k) const;

  /// "OpenBLAS 0.3.21"
  const std::string& name() const { return name_; }

 private:
  using Sgemm = void(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                     const float* a, int lda, const float* b, int ldb, float beta, float* c,
                     int ldc);
  Sgemm* sgemm_ = nullptr;
  std::string name_;
};

}  // namespace laya::tools
