// A compiler that "compiles" by copying the source, and counts.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "jit/compiler.h"

namespace laya::test {

class FakeCompiler final : public jit::Compiler {
 public:
  explicit FakeCompiler(jit::Backend backend, std::string identity = "fake-1")
      : backend_(backend), identity_(std::move(identity)) {}

  jit::Backend backend() const override { return backend_; }
  const std::string& identity() const override { return identity_; }
  std::string unavailable_reason() const override { return "this compiler is not installed"; }
  std::vector<std::string> options(const jit::Target& target) const override {
    return {"-arch=" + target.name, "-O3"};
  }

  Result<jit::CompileOutput> compile(const jit::CompileRequest& request) override {
    if (identity_.empty()) return fail(ErrorKind::kUnavailable, unavailable_reason());
    ++compiles;
    if (on_compile) on_compile();
    if (should_fail) return fail(ErrorKind::kCompileFailed, "does not compile", "line 1: oh no");
    jit::CompileOutput output;
    output.object = "object of " + request.source;
    output.attributes.registers = 40;
    output.attributes.max_threads = 256;
    return output;
  }

  std::atomic<int> compiles = 0;
  std::atomic<bool> should_fail = false;
  std::function<void()> on_compile;

 private:
  jit::Backend backend_;
  std::string identity_;
};

}  // namespace laya::test
