#include "jit/llvm/optimizer.h"

#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>

namespace laya::llvm_component {
namespace {

// Of -O2 what kernels gain by, each pass where it finds most to do. -O2 itself runs most passes
// several times and takes three times as long for the same speed. Loops are unrolled where that is
// complete or asked for by a pragma.
constexpr const char* kPasses =
    "require<profile-summary>,"
    "cgscc(inline,function(sroa,early-cse,simplifycfg)),"
    "function("
    "instcombine<no-verify-fixpoint>,loop-simplify,lcssa,loop-mssa(loop-rotate,licm),"
    "loop(loop-unroll-full),"
    // Arrays whose every index is known by now become registers.
    "sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,gvn,dse,"
    "loop-vectorize,slp-vectorizer,vector-combine,instcombine<no-verify-fixpoint>,"
    "loop-unroll<O2;no-runtime;no-partial>,simplifycfg),"
    "globaldce";

/// Tells the passes what instructions cost. Null: `error` says why.
std::unique_ptr<llvm::TargetMachine> make_machine(const std::string& triple, std::string& error) {
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (target == nullptr) return nullptr;
  // CPU and features are attributes of each function.
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, "", "", {}, llvm::Reloc::PIC_));
}

}  // namespace

bool optimize(llvm::Module& module, std::string& error) {
  const auto machine = make_machine(module.getTargetTriple(), error);
  if (machine == nullptr) return false;
  llvm::PassBuilder builder(machine.get());
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  if (llvm::Error failure = builder.parsePassPipeline(passes, kPasses)) {
    error = llvm::toString(std::move(failure));
    return false;
  }
  passes.run(module, modules);
  return true;
}

}  // namespace laya::llvm_component
