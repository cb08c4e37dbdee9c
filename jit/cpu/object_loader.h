// Loads an ELF64 x86-64 relocatable object into memory of this process: no file, no dlopen and no
// LLVM. Code ends up executable and not writable, constants readable only.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "cache/result.h"

namespace laya::jit {

/// Loaded machine code; unmapped on destruction, so that nothing of it may be running by then.
class ObjectImage {
 public:
  /// Loads `object`, in which `entry` must be a global function. kDeviceError: the object is
  /// damaged, is for another machine, needs a symbol that kernels may not use (named), or needs
  /// something that a kernel should not have: thread-local data, constructors, position-dependent
  /// code.
  static Result<ObjectImage> load(std::string_view object, std::string_view entry);

  ObjectImage() = default;
  ObjectImage(ObjectImage&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        entry_(std::exchange(other.entry_, nullptr)) {}
  ObjectImage& operator=(ObjectImage&& other) noexcept;
  ~ObjectImage();

  /// Address of the entry function.
  void* entry() const { return entry_; }
  /// Memory in use, a multiple of the page size.
  size_t bytes() const { return bytes_; }

 private:
  friend class ObjectLoader;

  void* base_ = nullptr;
  size_t bytes_ = 0;
  void* entry_ = nullptr;
};

}  // namespace laya::jit
