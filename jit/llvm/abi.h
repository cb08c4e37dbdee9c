// The border between Laya and liblaya_llvm.so, the component that holds Clang and LLVM.
//
// Plain data only: no C++ type, no exception and nothing of LLVM crosses it, so that the component
// is opened with dlopen when the first CPU kernel is compiled and is absent from a process that
// compiles nothing. The entry symbol carries the version; a change of any struct changes it.
#pragma once

#include <stddef.h>

extern "C" {

/// Bytes that belong to whoever made them; not terminated.
struct LayaLlvmText {
  const char* data;
  size_t size;
};

/// A file that the compiler can see. No other one exists for it.
struct LayaLlvmFile {
  LayaLlvmText name;
  LayaLlvmText text;
};

struct LayaLlvmRequest {
  LayaLlvmFile source;
  const LayaLlvmFile* headers;
  size_t header_count;
  const LayaLlvmText* options;  ///< cc1 arguments without file names
  size_t option_count;
};

struct LayaLlvmResult {
  int ok;               ///< 0: `log` says why there is no object
  LayaLlvmText object;  ///< ELF relocatable object; empty on failure
  LayaLlvmText log;     ///< every diagnostic, also on success
};

struct LayaLlvmApi {
  /// Thread-safe. Null only when memory is exhausted; else to be given back to release() once.
  LayaLlvmResult* (*compile)(const LayaLlvmRequest* request);
  void (*release)(LayaLlvmResult* result);
};

/// The only exported symbol. Never null, valid for the life of the process.
#define LAYA_LLVM_ENTRY "laya_llvm_api_v1"
__attribute__((visibility("default"))) const LayaLlvmApi* laya_llvm_api_v1(void);

}  // extern "C"
