// cuBLASLt as a yardstick: opened at run time if it is there, so that nothing depends on it. Only
// what products with fp32 sums need is declared, from the library's documented C interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace laya::tools {

/// One thread at a time. The library stays open until the process ends.
class CublasLt {
 public:
  /// Empty if the library cannot be opened. `workspace`: device memory for the library's use.
  static std::optional<CublasLt> open(void* workspace, size_t workspace_bytes);

  struct Algorithm {
    uint64_t data[8];
  };
  /// A product and the algorithm chosen for it. Its handles live as long as the process.
  struct Plan {
    bool adds = false;
    void* desc = nullptr;
    void *w = nullptr, *a = nullptr, *out = nullptr;
    Algorithm algorithm{};
  };

  /// Plans out[rows, n] = a[rows, k] * w[n, k]^T; all of it in bf16, else fp16. `adds`: it is added
  /// to out, which then is fp32. Empty: there is no algorithm.
  std::optional<Plan> plan(bool is_bf16, int64_t rows, int64_t n, int64_t k, bool adds) const;

  /// Queues a product on a CUstream. False: the library refuses.
  bool run(const Plan& plan, const void* a, const void* w, void* out, void* stream) const;

 private:
  struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
  };
  CublasLt() = default;

  int (*create_)(void**) = nullptr;
  int (*desc_create_)(void**, int, int) = nullptr;
  int (*desc_set_)(void*, int, const void*, size_t) = nullptr;
  int (*layout_create_)(void**, int, uint64_t, uint64_t, int64_t) = nullptr;
  int (*preference_create_)(void**) = nullptr;
  int (*preference_set_)(void*, int, const void*, size_t) = nullptr;
  int (*heuristic_)(void*, void*, void*, void*, void*, void*, void*, int, Heuristic*,
                    int*) = nullptr;
  int (*matmul_)(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                 const void*, void*, void*, void*, const Algorithm*, void*, size_t,
                 void*) = nullptr;
  void* handle_ = nullptr;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

}  // namespace laya::tools
