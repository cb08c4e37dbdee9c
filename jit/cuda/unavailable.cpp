// What a build without CUDA headers does when it is asked for a GPU: it says so. Built instead of
// the files that need the headers.
#include "jit/compilers.h"
#include "jit/cuda/nvrtc_library.h"
#include "jit/device.h"
#include "jit/loader.h"

namespace laya::jit {
namespace {

constexpr const char* kReason =
    "this build has no GPU support because the CUDA headers were missing: run tools/setup (or "
    "install the CUDA toolkit 12 or later) and build again";

class MissingNvrtc final : public Compiler {
 public:
  Backend backend() const override { return Backend::kCuda; }
  const std::string& identity() const override { return identity_; }
  std::string unavailable_reason() const override { return kReason; }
  std::vector<std::string> options(const Target& target) const override {
    return cuda::nvrtc_options(target);
  }
  Result<CompileOutput> compile(const CompileRequest& request) override {
    return fail(ErrorKind::kUnavailable, request.name + ": " + kReason);
  }

 private:
  const std::string identity_;
};

}  // namespace

// The parameters are those of the other build's definitions.
// NOLINTBEGIN(performance-unnecessary-value-param)
std::unique_ptr<Compiler> make_nvrtc_compiler(std::filesystem::path /*library*/, LogFn /*log*/) {
  return std::make_unique<MissingNvrtc>();
}

Result<std::shared_ptr<Device>> open_cuda_device(int /*ordinal*/) {
  return fail(ErrorKind::kUnavailable, kReason);
}

Result<std::shared_ptr<const Kernel>> load_cuda_kernel(LoadRequest request) {
  return fail(ErrorKind::kUnavailable, "loading " + request.name + ": " + kReason);
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace laya::jit
