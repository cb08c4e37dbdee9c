#include "jit/llvm/clang_driver.h"

#include <clang/Basic/Diagnostic.h>
#include <clang/Basic/DiagnosticOptions.h>
#include <clang/Basic/TargetInfo.h>
#include <clang/CodeGen/BackendUtil.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>
#include <pthread.h>

#include <algorithm>

#include "jit/llvm/fatal_errors.h"
#include "jit/llvm/optimizer.h"

namespace laya::llvm_component {
namespace {

using FileSystem = llvm::IntrusiveRefCntPtr<llvm::vfs::InMemoryFileSystem>;

/// Where the files lie that Clang sees; messages name them relative to it.
constexpr const char* kFolder = "/kernel";

/// Clang's parser recurses on nested source, and the caller's stack may be small.
constexpr size_t kStackBytes = size_t{16} << 20;

void initialize_once() {
  static const bool done = [] {
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    llvm::InitializeAllAsmParsers();
    install_fatal_error_recovery();
    return true;
  }();
  static_cast<void>(done);
}

class Compilation {
 public:
  explicit Compilation(const Job& job) : job_(job) {
    // Messages name lines of the template (`#line`), not of its expansion.
    diagnostic_options_->ShowPresumedLoc = true;
  }

  /// False: the log says why.
  bool run() {
    if (!add_files() || !parse_options()) return false;
    instance_.createDiagnostics(new clang::TextDiagnosticPrinter(log_, diagnostic_options_.get()));
    instance_.createFileManager(files_);
    instance_.setVerboseOutputStream(silence_);  // "1 warning generated."
    clang::EmitLLVMOnlyAction action;            // owns what the module lives in
    if (!instance_.ExecuteAction(action)) return false;
    const std::unique_ptr<llvm::Module> module = action.takeModule();
    return optimize_module(*module) && emit_object(*module);
  }

  std::string_view object() const { return {object_.data(), object_.size()}; }
  const std::string& log() const { return log_text_; }

 private:
  bool add_files() {
    files_->setCurrentWorkingDirectory(kFolder);
    if (!add_file(job_.source)) return false;
    return std::all_of(job_.headers.begin(), job_.headers.end(),
                       [this](const File& header) { return add_file(header); });
  }

  bool add_file(const File& file) {
    // A copy, since Clang wants a terminating zero behind the text.
    if (files_->addFile(file.name, 0, llvm::MemoryBuffer::getMemBufferCopy(file.text))) return true;
    log_ << "error: two different files are named '" << file.name << "'\n";
    return false;
  }

  bool parse_options() {
    std::vector<const char*> arguments;
    for (const std::string& option : job_.options) arguments.push_back(option.c_str());
    // Passes: see optimizer.h.
    for (const char* fixed : {"-emit-obj", "-disable-llvm-passes", "-x", "c++", "-I", "."}) {
      arguments.push_back(fixed);
    }
    const std::string source_name(job_.source.name);
    arguments.push_back(source_name.c_str());
    // Clang reports bad options before it has a CompilerInstance to report them with.
    clang::DiagnosticsEngine diagnostics(
        new clang::DiagnosticIDs, diagnostic_options_,
        new clang::TextDiagnosticPrinter(log_, diagnostic_options_.get()));
    return clang::CompilerInvocation::CreateFromArgs(instance_.getInvocation(), arguments,
                                                     diagnostics);
  }

  bool optimize_module(llvm::Module& module) {
    std::string error;
    if (optimize(module, error)) return true;
    log_ << "error: " << error << '\n';
    return false;
  }

  bool emit_object(llvm::Module& module) {
    module.getContext().setDiagnosticHandlerCallBack(take_diagnostic, this);
    clang::EmitBackendOutput(instance_.getDiagnostics(), instance_.getHeaderSearchOpts(),
                             instance_.getCodeGenOpts(), instance_.getTargetOpts(),
                             instance_.getLangOpts(), instance_.getTarget().getDataLayoutString(),
                             &module, clang::Backend_EmitObj, files_,
                             std::make_unique<llvm::raw_svector_ostream>(object_));
    return !backend_failed_ && !instance_.getDiagnostics().hasErrorOccurred();
  }

  /// What the code generator has to say.
  static void take_diagnostic(const llvm::DiagnosticInfo* info, void* compilation) {
    auto& self = *static_cast<Compilation*>(compilation);
    const llvm::DiagnosticSeverity severity = info->getSeverity();
    if (severity != llvm::DS_Error && severity != llvm::DS_Warning) return;
    if (severity == llvm::DS_Error) self.backend_failed_ = true;
    self.log_ << (severity == llvm::DS_Error ? "error: " : "warning: ");
    llvm::DiagnosticPrinterRawOStream printer(self.log_);
    info->print(printer);
    self.log_ << '\n';
  }

  const Job& job_;
  FileSystem files_{new llvm::vfs::InMemoryFileSystem};
  std::string log_text_;
  llvm::raw_string_ostream log_{log_text_};
  llvm::raw_null_ostream silence_;  // not llvm::nulls(), which threads would share
  llvm::SmallVector<char, 0> object_;
  llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> diagnostic_options_{
      new clang::DiagnosticOptions};
  clang::CompilerInstance instance_;
  bool backend_failed_ = false;
};

void compile_here(const Job& job, Outcome& outcome) {
  std::string fatal;
  const bool survived = recover_from_fatal_errors(fatal, [&] {
    Compilation compilation(job);
    outcome.ok = compilation.run();
    outcome.object = compilation.object();
    outcome.log = compilation.log();
  });
  if (survived) return;
  outcome.ok = false;
  outcome.object.clear();
  outcome.log += "fatal error: LLVM gave up: " + fatal + "\n";
}

/// Runs `work` on a thread with a large stack and waits for it; on this one if there is no other.
template <class Work>
void run_on_large_stack(Work work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const auto start = [](void* argument) -> void* {
    (*static_cast<Work*>(argument))();
    return nullptr;
  };
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, start, &work) == 0;
  pthread_attr_destroy(&attributes);
  if (!started) return work();
  pthread_join(thread, nullptr);
}

}  // namespace

Outcome compile(const Job& job) {
  initialize_once();
  Outcome outcome;
  run_on_large_stack([&] { compile_here(job, outcome); });
  return outcome;
}

}  // namespace laya::llvm_component
