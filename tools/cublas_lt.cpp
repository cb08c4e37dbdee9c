#include "tools/cublas_lt.h"

#include <dlfcn.h>

#include <type_traits>

namespace laya::tools {

std::optional<CublasLt> CublasLt::open(void* workspace, size_t workspace_bytes) {
  CublasLt lt;
  lt.workspace_ = workspace;
  lt.workspace_bytes_ = workspace_bytes;
  void* library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (!get(lt.create_, "cublasLtCreate") || !get(lt.desc_create_, "cublasLtMatmulDescCreate") ||
      !get(lt.desc_set_, "cublasLtMatmulDescSetAttribute") ||
      !get(lt.layout_create_, "cublasLtMatrixLayoutCreate") ||
      !get(lt.preference_create_, "cublasLtMatmulPreferenceCreate") ||
      !get(lt.preference_set_, "cublasLtMatmulPreferenceSetAttribute") ||
      !get(lt.heuristic_, "cublasLtMatmulAlgoGetHeuristic") || !get(lt.matmul_, "cublasLtMatmul") ||
      lt.create_(&lt.handle_) != 0) {
    return std::nullopt;
  }
  return lt;
}

std::optional<CublasLt::Plan> CublasLt::plan(bool is_bf16, int64_t rows, int64_t n, int64_t k,
                                             bool adds) const {
  constexpr int kCompute32F = 68, kR32F = 0, kTransA = 3, kOpT = 1, kMaxWorkspace = 1;
  const int type = is_bf16 ? 14 : 2;
  // Column-major for cuBLAS: out^T[n, rows] = (w^T)^T * a^T.
  const int transpose = kOpT;
  Plan p{.adds = adds};
  void* preference = nullptr;
  Heuristic result{};
  int found = 0;
  const bool ok =
      desc_create_(&p.desc, kCompute32F, kR32F) == 0 &&
      desc_set_(p.desc, kTransA, &transpose, sizeof(transpose)) == 0 &&
      layout_create_(&p.w, type, k, n, k) == 0 && layout_create_(&p.a, type, k, rows, k) == 0 &&
      layout_create_(&p.out, adds ? kR32F : type, n, rows, n) == 0 &&
      preference_create_(&preference) == 0 &&
      preference_set_(preference, kMaxWorkspace, &workspace_bytes_, sizeof(workspace_bytes_)) ==
          0 &&
      heuristic_(handle_, p.desc, p.w, p.a, p.out, p.out, preference, 1, &result, &found) == 0;
  if (!ok || found != 1) return std::nullopt;
  p.algorithm = result.algorithm;
  return p;
}

bool CublasLt::run(const Plan& plan, const void* a, const void* w, void* out, void* stream) const {
  const float one = 1, before = plan.adds ? 1 : 0;
  return matmul_(handle_, plan.desc, &one, w, plan.w, a, plan.a, &before, out, plan.out, out,
                 plan.out, &plan.algorithm, workspace_, workspace_bytes_, stream) == 0;
}

}  // namespace laya::tools
