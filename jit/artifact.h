// What is stored for one kernel: its machine code and what it needs to run; and the key it is
// stored under.
#pragma once

#include <string>
#include <vector>

#include "cache/key.h"
#include "cache/store.h"
#include "jit/compiler.h"
#include "jit/kernel_spec.h"
#include "jit/template.h"

namespace laya::jit {

struct Artifact {
  std::string object;
  KernelAttributes attributes;
  double compile_seconds = 0;
};

/// Everything that decides the machine code, and so the key: no path, time or history is in it.
struct ArtifactInputs {
  Source source;
  std::vector<Header> headers;  ///< sorted by name
  std::vector<std::string> options;
};

/// Fields, in order: laya-key (version), backend, target, kernel (the spec as text), option...,
/// constants; then, common to all kernels of a template, header (a name) and header-text...,
/// source.
cache::Key artifact_key(const KernelSpec& spec, const ArtifactInputs& inputs);

/// The record to store; metadata is a JSON object with kernel, registers, compile_seconds, ...
cache::Record to_record(const KernelSpec& spec, const Artifact& artifact, std::string producer);

/// The inverse. kStoreError: the metadata is not what to_record() writes.
Result<Artifact> from_record(cache::Record record);

}  // namespace laya::jit
