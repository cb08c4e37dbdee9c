// One C++ source to one ELF object with Clang as a library, in memory: no file is read or written,
// no process is started. Used by component.cpp only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace laya::llvm_component {

struct File {
  std::string_view name;
  std::string_view text;
};

struct Job {
  File source;
  std::vector<File> headers;  ///< found by `#include "name"` and `#include <name>`
  std::vector<std::string> options;
};

struct Outcome {
  bool ok = false;
  std::string object;
  std::string log;
};

/// Thread-safe. The same job gives the same bytes, in every process.
Outcome compile(const Job& job);

}  // namespace laya::llvm_component
