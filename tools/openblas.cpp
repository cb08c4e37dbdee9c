#include "tools/openblas.h"

#include <dlfcn.h>

#include <cstdlib>

namespace laya::tools {

Result<Openblas> Openblas::open(int threads) {
  // Read when the library is loaded: idle threads look for work for 2^20 cycles. By itself it is
  // 2^26 or more, in which they take a core from whoever is measured next.
  ::setenv("OPENBLAS_THREAD_TIMEOUT", "20", /*overwrite=*/0);
  void* const library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(ErrorKind::kUnavailable,
                std::string("no OpenBLAS: ") + dlerror() + "; install libopenblas0-pthread");
  }
  Openblas blas;
  blas.sgemm_ = reinterpret_cast<Sgemm*>(dlsym(library, "cblas_sgemm"));
  auto* set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  auto* config = reinterpret_cast<const char* (*)()>(dlsym(library, "openblas_get_config"));
  if (blas.sgemm_ == nullptr || set_threads == nullptr || config == nullptr) {
    return fail(ErrorKind::kUnavailable, "libopenblas.so.0 lacks a function of its interface");
  }
  set_threads(threads);
  // "OpenBLAS 0.3.21 DYNAMIC_ARCH ..."
  const std::string text = config();
  blas.name_ = text.substr(0, text.find(' ', text.find(' ') + 1));
  return blas;
}

void Openblas::multiply(const float* a, const float* w, float* out, int64_t rows, int64_t n,
                        int64_t k) const {
  constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
  const auto size = [](int64_t value) { return static_cast<int>(value); };
  sgemm_(kRowMajor, kPlain, kTransposed, size(rows), size(n), size(k), 1, a, size(k), w, size(k), 0,
         out, size(n));
}

}  // namespace laya::tools
