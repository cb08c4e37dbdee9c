// cuBLASLt as a yardstick: opened at run time if it is there, so that nothing depends on it. Only
// what out = a * w^T with fp32 sums needs is declared, from the library's documented C interface.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace laya::tools {

class CublasLt {
 public:
  /// Empty if the library cannot be opened. `workspace`: device memory for the library's use.
  static std::optional<CublasLt> open(void* workspace, size_t workspace_bytes) {
    CublasLt lt;
    lt.workspace_ = workspace;
    lt.workspace_bytes_ = workspace_bytes;
    void* library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) library = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::nullopt;
    const auto get = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    if (!get(lt.create_, "cublasLtCreate") || !get(lt.desc_create_, "cublasLtMatmulDescCreate") ||
        !get(lt.desc_set_, "cublasLtMatmulDescSetAttribute") ||
        !get(lt.layout_create_, "cublasLtMatrixLayoutCreate") ||
        !get(lt.preference_create_, "cublasLtMatmulPreferenceCreate") ||
        !get(lt.preference_set_, "cublasLtMatmulPreferenceSetAttribute") ||
        !get(lt.heuristic_, "cublasLtMatmulAlgoGetHeuristic") ||
        !get(lt.matmul_, "cublasLtMatmul") || lt.create_(&lt.handle_) != 0) {
      return std::nullopt;
    }
    return lt;
  }

  /// Chooses an algorithm for out[rows, n] = a[rows, k] * w[n, k]^T. False: there is none.
  bool plan(bool is_bf16, int64_t rows, int64_t n, int64_t k) {
    constexpr int kCompute32F = 68, kR32F = 0, kTransA = 3, kOpT = 1, kMaxWorkspace = 1;
    const int type = is_bf16 ? 14 : 2;
    // Column-major for cuBLAS: out^T[n, rows] = (w^T)^T * a^T.
    const int transpose = kOpT;
    void* preference = nullptr;
    Heuristic result{};
    int found = 0;
    const bool ok =
        desc_create_(&desc_, kCompute32F, kR32F) == 0 &&
        desc_set_(desc_, kTransA, &transpose, sizeof(transpose)) == 0 &&
        layout_create_(&w_, type, k, n, k) == 0 && layout_create_(&a_, type, k, rows, k) == 0 &&
        layout_create_(&out_, type, n, rows, n) == 0 && preference_create_(&preference) == 0 &&
        preference_set_(preference, kMaxWorkspace, &workspace_bytes_, sizeof(workspace_bytes_)) ==
            0 &&
        heuristic_(handle_, desc_, w_, a_, out_, out_, preference, 1, &result, &found) == 0;
    algorithm_ = result.algorithm;
    return ok && found == 1;
  }

  bool run(const void* a, const void* w, void* out, void* stream) const {
    const float one = 1, zero = 0;
    return matmul_(handle_, desc_, &one, w, w_, a, a_, &zero, out, out_, out, out_, &algorithm_,
                   workspace_, workspace_bytes_, stream) == 0;
  }

 private:
  struct Algorithm {
    uint64_t data[8];
  };
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
  void* desc_ = nullptr;
  void *w_ = nullptr, *a_ = nullptr, *out_ = nullptr;
  Algorithm algorithm_{};
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

}  // namespace laya::tools
