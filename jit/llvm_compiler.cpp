// The CPU compiler: finds liblaya_llvm.so and the libraries behind it, identifies them by their
// build ids without loading them, and opens them on the first compile.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "jit/build_id.h"
#include "jit/compilers.h"
#include "jit/cpu/elf_object.h"
#include "jit/llvm/abi.h"

namespace laya::jit {
namespace {

namespace fs = std::filesystem;

// Set by jit/llvm/CMakeLists.txt where LLVM was found.
#if defined(LAYA_LLVM_DIR)
constexpr bool kIsBuilt = true;
#else
constexpr bool kIsBuilt = false;
#define LAYA_LLVM_DIR ""
#define LAYA_LLVM_NAME "libLLVM.so.19.1"
#define LAYA_CLANG_NAME "libclang-cpp.so.19.1"
#endif

constexpr const char* kComponentName = "liblaya_llvm.so";

/// Folder of the program or library that this code is in.
fs::path own_folder() {
  Dl_info info{};
  void* map = nullptr;
  const auto* here = reinterpret_cast<const void*>(&own_folder);
  if (dladdr1(here, &info, &map, RTLD_DL_LINKMAP) == 0 || map == nullptr) return {};
  // The program itself has no name there, and in `info` only the one that it was called by.
  const char* name = static_cast<const link_map*>(map)->l_name;
  std::error_code error;
  return fs::canonical(*name == '\0' ? "/proc/self/exe" : name, error).parent_path();
}

/// The first of `folders` that holds `name`, as a path of that file; empty if none does.
fs::path find_file(const std::vector<fs::path>& folders, const char* name) {
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (!folder.empty() && fs::is_regular_file(folder / name, error)) return folder / name;
  }
  return {};
}

std::vector<fs::path> component_folders() {
  const fs::path own = own_folder();
  if (own.empty()) return {LAYA_INSTALL_LIB_DIR, LAYA_BUILD_LIB_DIR};
  return {own, own / "../lib", LAYA_INSTALL_LIB_DIR, LAYA_BUILD_LIB_DIR};
}

/// Where the component's own search path and then the system's loader would look.
std::vector<fs::path> library_folders(const fs::path& component) {
  return {component.parent_path(),
          LAYA_LLVM_DIR,
          "/usr/local/lib",
          "/lib/x86_64-linux-gnu",
          "/usr/lib/x86_64-linux-gnu",
          "/lib64",
          "/usr/lib64",
          "/lib",
          "/usr/lib"};
}

/// The files of an installed compiler, in the order in which they have to be opened.
struct Installation {
  std::vector<fs::path> files;
  std::string identity;  ///< their build ids; empty if anything is missing
  std::string reason;    ///< why identity is empty
};

Installation find_installation() {
  Installation found;
  const fs::path component = find_file(component_folders(), kComponentName);
  if (component.empty()) {
    found.reason =
        std::string(kComponentName) +
        (kIsBuilt ? " is not beside this program nor in its lib folder; build or install Laya again"
                  : " was not built, since LLVM was missing; install llvm-19-dev, "
                    "libclang-19-dev and libclang-cpp19-dev and build again");
    return found;
  }
  std::string identity;
  for (const char* name : {LAYA_LLVM_NAME, LAYA_CLANG_NAME}) {
    const fs::path file = find_file(library_folders(component), name);
    if (file.empty()) {
      found.reason = std::string(name) + " is missing; install libllvm19 and libclang-cpp19";
      return found;
    }
    found.files.push_back(file);
  }
  found.files.push_back(component);
  for (const fs::path& file : found.files) {
    const std::string id = read_build_id(file);
    if (id.empty()) {
      found.reason = file.string() + " has no build id, so that it cannot be told from others";
      return found;
    }
    identity += (identity.empty() ? "llvm " : "+") + id;
  }
  found.identity = identity;
  return found;
}

/// Opens exactly the files whose build ids were read: the libraries first, so that the loader finds
/// them already there when the component asks for them by name. They are never closed: LLVM keeps
/// state that outlives its last use.
Result<const LayaLlvmApi*> open_component(const std::vector<fs::path>& files) {
  void* handle = nullptr;
  for (const fs::path& file : files) {
    handle = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
      return fail(ErrorKind::kUnavailable,
                  std::string("cannot open the CPU compiler: ") + dlerror());
    }
  }
  using Entry = const LayaLlvmApi* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, LAYA_LLVM_ENTRY));
  if (entry == nullptr) {
    return fail(ErrorKind::kUnavailable, files.back().string() +
                                             " belongs to another version of Laya: it has no " +
                                             LAYA_LLVM_ENTRY);
  }
  return entry();
}

LayaLlvmText to_text(const std::string& text) {
  return {text.data(), text.size()};
}

std::string to_string(const LayaLlvmText& text) {
  return {text.data, text.size};
}

/// What the compiler said and made.
struct Outcome {
  bool ok = false;
  std::string object, log;
};

Result<Outcome> call(const LayaLlvmApi& api, const CompileRequest& request) {
  std::vector<LayaLlvmFile> headers;
  for (const Header& header : request.headers) {
    headers.push_back({to_text(header.name), to_text(header.text)});
  }
  std::vector<LayaLlvmText> options;
  for (const std::string& option : request.options) options.push_back(to_text(option));
  const LayaLlvmRequest plain{{to_text(request.name), to_text(request.source)},
                              headers.data(),
                              headers.size(),
                              options.data(),
                              options.size()};
  LayaLlvmResult* result = api.compile(&plain);
  if (result == nullptr) return fail(ErrorKind::kCompileFailed, request.name + ": out of memory");
  Outcome outcome{result->ok != 0, to_string(result->object), to_string(result->log)};
  api.release(result);
  return outcome;
}

/// Says what a kernel needs and `object` does not have; empty if it has all.
std::string missing_symbols(const std::string& object, const std::string& entry) {
  const auto parsed = ElfObject::parse(object);
  if (!parsed) return parsed.error().message;
  for (const std::string& name : {entry, std::string("laya_launch")}) {
    if (parsed->find(name) == nullptr) return "it defines no extern \"C\" function '" + name + "'";
  }
  return {};
}

class LlvmCompiler final : public Compiler {
 public:
  explicit LlvmCompiler(LogFn log) : log_(std::move(log)) {}

  Backend backend() const override { return Backend::kCpu; }
  const std::string& identity() const override { return installation().identity; }
  std::string unavailable_reason() const override { return installation().reason; }
  std::vector<std::string> options(const Target& target) const override;
  Result<CompileOutput> compile(const CompileRequest& request) override;

 private:
  const Installation& installation() const {
    std::call_once(installation_once_, [this] { installation_ = find_installation(); });
    return installation_;
  }

  /// Opens the component if it is not open. A failure is not remembered.
  Result<const LayaLlvmApi*> api();

  LogFn log_;
  mutable std::once_flag installation_once_;
  mutable Installation installation_;
  std::mutex api_mutex_;
  const LayaLlvmApi* api_ = nullptr;  ///< guarded by api_mutex_
};

std::vector<std::string> LlvmCompiler::options(const Target& target) const {
  const auto parts = parse_cpu_target(target);
  if (!parts) return {};
  // The CPU's name only tunes. Which instructions may be used is what the features say, since a
  // hypervisor may hide some that the name would imply.
  std::vector<std::string> options = {
      "-triple",     parts->arch + "-unknown-linux-gnu",
      "-target-cpu", parts->arch == "x86_64" ? "x86-64" : "generic",
      "-tune-cpu",   parts->cpu,
  };
  for (const std::string& feature : parts->features) {
    options.insert(options.end(), {"-target-feature", "+" + feature});
  }
  // Kernels are written in vectors as wide as the CPU's registers; LLVM would split them in two on
  // CPUs where it prefers 256 bits for code that it vectorizes by itself.
  if (has_cpu_feature(target, "avx512f")) options.emplace_back("-mprefer-vector-width=512");
  static constexpr const char* kAlways[] = {
      "-O2", "-std=c++20", "-fgnuc-version=4.2.1",
      // One rounding for a*b + c everywhere. Everything else keeps IEEE semantics: a sum is added
      // in the order in which the template adds it.
      "-ffp-contract=fast",
      // What the object loader expects: position-independent, all in reach of 32-bit offsets, no
      // unwind tables, no guards of static variables.
      "-mrelocation-model", "pic", "-pic-level", "2", "-mcmodel=small", "-fvisibility=hidden",
      "-mframe-pointer=none", "-fno-rtti", "-fno-threadsafe-statics", "-fno-use-cxa-atexit",
      // Nothing on the disk of the machine is part of a kernel.
      "-nostdsysteminc", "-nobuiltininc", "-nostdinc++", "-discard-value-names", "-Wall",
      "-Wno-unused-function", "-Wno-psabi", "-ferror-limit", "20"};
  options.insert(options.end(), std::begin(kAlways), std::end(kAlways));
  return options;
}

Result<const LayaLlvmApi*> LlvmCompiler::api() {
  if (identity().empty()) {
    return fail(ErrorKind::kUnavailable, "no CPU compiler: " + unavailable_reason());
  }
  const std::lock_guard lock(api_mutex_);
  if (api_ == nullptr) {
    if (log_) log_(LogLevel::kDebug, "opening " + installation().files.back().string());
    LAYA_ASSIGN(api_, open_component(installation().files));
  }
  return api_;
}

Result<CompileOutput> LlvmCompiler::compile(const CompileRequest& request) {
  LAYA_ASSIGN(const CpuTargetParts parts, parse_cpu_target(request.target));
  LAYA_ASSIGN(const LayaLlvmApi* component, api());
  LAYA_ASSIGN(Outcome outcome, call(*component, request));
  if (!outcome.ok) {
    return fail(ErrorKind::kCompileFailed, request.name + " does not compile for " + parts.cpu,
                std::move(outcome.log));
  }
  if (const std::string what = missing_symbols(outcome.object, request.entry); !what.empty()) {
    return fail(ErrorKind::kCompileFailed, request.name + ": " + what, std::move(outcome.log));
  }
  return CompileOutput{std::move(outcome.object), std::move(outcome.log), {}};
}

}  // namespace

std::unique_ptr<Compiler> make_llvm_compiler(LogFn log) {
  return std::make_unique<LlvmCompiler>(std::move(log));
}

}  // namespace laya::jit
