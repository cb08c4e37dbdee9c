// A loaded kernel, ready to launch.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "cache/result.h"
#include "jit/compiler.h"
#include "jit/device.h"
#include "jit/template.h"

namespace laya::jit {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

/// How many blocks of how many threads. A grid with a zero launches nothing and is no error.
/// The CPU calls the kernel once per block of the grid and ignores the rest.
struct LaunchShape {
  Dim3 grid = {};
  Dim3 block = {};
  uint32_t dynamic_shared_bytes = 0;
};

/// Most arguments of a kernel.
constexpr size_t kMaxLaunchArgs = 64;

/// Address and size in bytes of one argument's value.
struct ArgRef {
  const void* value;
  uint32_t bytes;
};

/// Immutable and thread-safe. Shares ownership of its machine code and may outlive the engine.
class Kernel {
 public:
  Kernel(std::string name, Signature signature, KernelAttributes attributes)
      : name_(std::move(name)), signature_(std::move(signature)), attributes_(attributes) {}
  virtual ~Kernel() = default;

  /// The spec as text, for messages.
  const std::string& name() const { return name_; }
  const Signature& signature() const { return signature_; }
  const KernelAttributes& attributes() const { return attributes_; }

  /// Queues the kernel on `stream`. Arguments are values (pointers are device addresses) whose
  /// count and sizes must match the signature: kBadInput otherwise, and nothing is launched.
  template <class... Args>
  Result<void> launch(Stream& stream, const LaunchShape& shape, const Args&... args) const {
    static_assert((std::is_trivially_copyable_v<Args> && ...), "pass plain values and pointers");
    const std::array<ArgRef, sizeof...(Args)> refs{
        ArgRef{static_cast<const void*>(&args), sizeof(Args)}...};
    return launch_args(stream, shape, refs);
  }
  Result<void> launch_args(Stream& stream, const LaunchShape& shape,
                           std::span<const ArgRef> args) const;

  /// Blocks of `threads` threads that fit on one multiprocessor at once; 1 on the CPU.
  virtual Result<int> occupancy(int threads, uint32_t dynamic_shared_bytes) const = 0;

 protected:
  /// `values[i]` is the address of argument i; already checked.
  virtual Result<void> do_launch(Stream& stream, const LaunchShape& shape,
                                 void* const* values) const = 0;

 private:
  std::string name_;
  Signature signature_;
  KernelAttributes attributes_;
};

}  // namespace laya::jit
