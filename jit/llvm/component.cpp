// The exported side of liblaya_llvm.so: plain structs in, plain structs out.
// Built without exceptions; everything that can go wrong is a LayaLlvmResult with a log.
#include <new>
#include <string>

#include "jit/llvm/abi.h"
#include "jit/llvm/clang_driver.h"

namespace {

std::string_view view(LayaLlvmText text) {
  return {text.data, text.size};
}

LayaLlvmText text(const std::string& value) {
  return {value.data(), value.size()};
}

/// What a caller gets, together with the memory that it points into.
struct OwnedResult : LayaLlvmResult {
  laya::llvm_component::Outcome outcome;
};

laya::llvm_component::Job to_job(const LayaLlvmRequest& request) {
  laya::llvm_component::Job job;
  job.source = {view(request.source.name), view(request.source.text)};
  for (size_t i = 0; i < request.header_count; ++i) {
    job.headers.push_back({view(request.headers[i].name), view(request.headers[i].text)});
  }
  for (size_t i = 0; i < request.option_count; ++i) {
    job.options.emplace_back(view(request.options[i]));
  }
  return job;
}

LayaLlvmResult* compile(const LayaLlvmRequest* request) {
  auto* result = new (std::nothrow) OwnedResult;
  if (result == nullptr) return nullptr;
  result->outcome = laya::llvm_component::compile(to_job(*request));
  result->ok = result->outcome.ok ? 1 : 0;
  result->object = text(result->outcome.object);
  result->log = text(result->outcome.log);
  return result;
}

void release(LayaLlvmResult* result) {
  delete static_cast<OwnedResult*>(result);
}

}  // namespace

const LayaLlvmApi* laya_llvm_api_v1(void) {
  static const LayaLlvmApi api{compile, release};
  return &api;
}
