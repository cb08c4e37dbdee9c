// The CUDA compiler: NVRTC, opened on the first compile and never closed.
#include <dlfcn.h>
#include <nvrtc.h>

#include <mutex>
#include <optional>

#include "jit/compilers.h"
#include "jit/cuda/cubin.h"
#include "jit/cuda/deep_stack.h"
#include "jit/cuda/nvrtc_library.h"
#include "jit/cuda/source_check.h"

namespace laya::jit {
namespace {

// NVRTC needs about 4 KB for each level of parentheses; check_source() allows 1000 of them, macros
// can add to that, and the thread that asks for a kernel may belong to an application with small
// stacks.
constexpr size_t kCompileStack = size_t{32} << 20;

#define LAYA_NVRTC_FUNCTIONS(X) \
  X(nvrtcGetErrorString)        \
  X(nvrtcVersion)               \
  X(nvrtcCreateProgram)         \
  X(nvrtcDestroyProgram)        \
  X(nvrtcCompileProgram)        \
  X(nvrtcGetProgramLogSize)     \
  X(nvrtcGetProgramLog)         \
  X(nvrtcGetCUBINSize)          \
  X(nvrtcGetCUBIN)

struct Nvrtc {
#define LAYA_FIELD(name) decltype(&::name) name = nullptr;
  LAYA_NVRTC_FUNCTIONS(LAYA_FIELD)
#undef LAYA_FIELD
};

tl::unexpected<Error> cannot_load(const std::filesystem::path& file, const std::string& why) {
  return fail(ErrorKind::kUnavailable, "NVRTC cannot be loaded from " + file.string() + ": " + why);
}

/// NVRTC opens libnvrtc-builtins by its bare name, which finds nothing, or another version, unless
/// that folder is known to the dynamic linker. A library of this name that is already loaded wins.
void open_builtins(const Nvrtc& nvrtc, const cuda::NvrtcLibrary& library) {
  int major = 0, minor = 0;
  nvrtc.nvrtcVersion(&major, &minor);
  const std::string wanted =
      "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
  for (const std::filesystem::path& file : library.builtins) {
    if (file.filename().string().starts_with(wanted)) dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
}

Result<Nvrtc> load(const cuda::NvrtcLibrary& library) {
  void* handle = dlopen(library.file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return cannot_load(library.file, dlerror());
  Nvrtc nvrtc;
#define LAYA_LOAD(name)                                                      \
  nvrtc.name = reinterpret_cast<decltype(nvrtc.name)>(dlsym(handle, #name)); \
  if (nvrtc.name == nullptr) return cannot_load(library.file, "it has no " #name);
  LAYA_NVRTC_FUNCTIONS(LAYA_LOAD)
#undef LAYA_LOAD
  open_builtins(nvrtc, library);
  return nvrtc;
}

/// Owns an nvrtcProgram.
class Program {
 public:
  explicit Program(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (program_ != nullptr) nvrtc_.nvrtcDestroyProgram(&program_);
  }

  nvrtcResult create(const CompileRequest& request) {
    std::vector<const char*> names, texts;
    for (const Header& header : request.headers) {
      names.push_back(header.name.c_str());
      texts.push_back(header.text.c_str());
    }
    return nvrtc_.nvrtcCreateProgram(&program_, request.source.c_str(), request.name.c_str(),
                                     static_cast<int>(names.size()), texts.data(), names.data());
  }

  nvrtcResult compile(const std::vector<std::string>& options) {
    std::vector<const char*> list;
    for (const std::string& option : options) list.push_back(option.c_str());
    return nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(list.size()), list.data());
  }

  /// What the compiler said; without the zero that NVRTC counts as part of it.
  std::string log() const {
    size_t bytes = 0;
    if (nvrtc_.nvrtcGetProgramLogSize(program_, &bytes) != NVRTC_SUCCESS) return {};
    std::string text(bytes, '\0');
    if (nvrtc_.nvrtcGetProgramLog(program_, text.data()) != NVRTC_SUCCESS) return {};
    text.erase(std::min(text.find('\0'), text.size()));
    return text;
  }

  /// Empty if there is none.
  std::string cubin() const {
    size_t bytes = 0;
    if (nvrtc_.nvrtcGetCUBINSize(program_, &bytes) != NVRTC_SUCCESS) return {};
    std::string object(bytes, '\0');
    if (nvrtc_.nvrtcGetCUBIN(program_, object.data()) != NVRTC_SUCCESS) return {};
    return object;
  }

 private:
  const Nvrtc& nvrtc_;
  nvrtcProgram program_ = nullptr;
};

class NvrtcCompiler final : public Compiler {
 public:
  NvrtcCompiler(std::filesystem::path library, LogFn log)
      : path_(std::move(library)), log_(std::move(log)) {}

  Backend backend() const override { return Backend::kCuda; }
  const std::string& identity() const override { return library().identity; }
  std::string unavailable_reason() const override { return library().problem; }
  std::vector<std::string> options(const Target& target) const override {
    return cuda::nvrtc_options(target);
  }
  Result<CompileOutput> compile(const CompileRequest& request) override;

 private:
  const cuda::NvrtcLibrary& library() const;
  Result<const Nvrtc*> open();
  Error explain(nvrtcResult code, const CompileRequest& request, std::string log) const;
  void report(const CompileRequest& request, const CompileOutput& output) const;

  std::filesystem::path path_;
  LogFn log_;
  mutable std::once_flag found_;
  mutable cuda::NvrtcLibrary library_;
  std::mutex open_mutex_;
  std::optional<Nvrtc> nvrtc_;
};

const cuda::NvrtcLibrary& NvrtcCompiler::library() const {
  std::call_once(found_, [this] {
    library_ =
        path_.empty() ? cuda::find_nvrtc(cuda::nvrtc_folders()) : cuda::describe_nvrtc(path_);
  });
  return library_;
}

Result<const Nvrtc*> NvrtcCompiler::open() {
  if (identity().empty()) return fail(ErrorKind::kUnavailable, unavailable_reason());
  const std::lock_guard lock(open_mutex_);
  if (!nvrtc_) {
    LAYA_ASSIGN(nvrtc_, load(library()));
  }
  return &*nvrtc_;
}

/// What to tell about a compile that failed with `code`.
Error NvrtcCompiler::explain(nvrtcResult code, const CompileRequest& request,
                             std::string log) const {
  const std::string said = log.substr(0, log.find('\n'));
  if (code == NVRTC_ERROR_COMPILATION) {
    return {ErrorKind::kCompileFailed, "NVRTC refuses " + request.name + ": " + said,
            std::move(log)};
  }
  int major = 0, minor = 0;
  nvrtc_->nvrtcVersion(&major, &minor);
  const std::string compiler = "NVRTC " + std::to_string(major) + "." + std::to_string(minor) +
                               " (" + library().file.string() + ")";
  if (code == NVRTC_ERROR_INVALID_OPTION) {
    return {ErrorKind::kUnavailable,
            compiler + " cannot compile for " + request.target.name +
                " as this build asks it to (" + said +
                "); install NVRTC 13 or choose another target",
            std::move(log)};
  }
  return {ErrorKind::kCompileFailed,
          compiler + " fails on " + request.name + ": " + nvrtc_->nvrtcGetErrorString(code) + " (" +
              std::to_string(code) + ")",
          std::move(log)};
}

/// Passes on what costs speed without failing the compile: registers that are not shared between
/// warps (C7508), tensor core operations that run one by one (C7510 to C7520), spilled registers.
void NvrtcCompiler::report(const CompileRequest& request, const CompileOutput& output) const {
  if (!log_) return;
  const std::string prefix = request.name + "@" + request.target.name + ": ";
  for (size_t at = 0; at < output.log.size();) {
    const size_t end = std::min(output.log.find('\n', at), output.log.size());
    const std::string line = output.log.substr(at, end - at);
    at = end + 1;
    const bool is_costly =
        line.find("(C75") != std::string::npos || line.find("spill") != std::string::npos;
    if (is_costly) log_(LogLevel::kWarning, prefix + line);
  }
  if (output.attributes.local_bytes > 0) {
    log_(LogLevel::kInfo, prefix + std::to_string(output.attributes.local_bytes) +
                              " bytes of local memory per thread");
  }
}

Result<CompileOutput> NvrtcCompiler::compile(const CompileRequest& request) {
  if (!request.target.name.starts_with("sm_")) {
    return fail(ErrorKind::kBadSpec, "target '" + request.target.name +
                                         "' has no machine code; write sm_XX, such as sm_90a "
                                         "(compute_XX would give PTX, which is never stored)");
  }
  LAYA_TRY(cuda::check_source(request));
  LAYA_ASSIGN(const Nvrtc* nvrtc, open());
  Program program(*nvrtc);
  nvrtcResult code = program.create(request);
  cuda::run_with_stack(kCompileStack, [&] {
    if (code == NVRTC_SUCCESS) code = program.compile(request.options);
  });
  CompileOutput output;
  output.log = program.log();
  if (code != NVRTC_SUCCESS) {
    return tl::make_unexpected(explain(code, request, std::move(output.log)));
  }
  output.object = program.cubin();
  auto cubin = cuda::read_cubin(output.object, request.entry);
  if (!cubin) {
    return fail(ErrorKind::kCompileFailed, request.name + ": " + cubin.error().message,
                std::move(output.log));
  }
  output.attributes = cubin->attributes;
  report(request, output);
  return output;
}

}  // namespace

std::unique_ptr<Compiler> make_nvrtc_compiler(std::filesystem::path library, LogFn log) {
  return std::make_unique<NvrtcCompiler>(std::move(library), std::move(log));
}

}  // namespace laya::jit
