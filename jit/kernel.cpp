#include "jit/kernel.h"

namespace laya::jit {
namespace {

tl::unexpected<Error> bad_args(const Kernel& kernel, std::string what) {
  return fail(ErrorKind::kBadInput, "launch of " + kernel.name() + ": " + std::move(what));
}

}  // namespace

Result<void> Kernel::launch_args(Stream& stream, const LaunchShape& shape,
                                 std::span<const ArgRef> args) const {
  if (args.size() != signature_.size() || args.size() > kMaxLaunchArgs) {
    return bad_args(*this, std::to_string(args.size()) + " arguments given, " +
                               std::to_string(signature_.size()) + " expected");
  }
  void* values[kMaxLaunchArgs];
  for (size_t i = 0; i < args.size(); ++i) {
    const ArgDecl& decl = signature_[i];
    if (args[i].bytes != static_cast<uint32_t>(size_of(decl.kind))) {
      return bad_args(*this, "argument " + std::to_string(i) + " ('" + decl.name + "') has " +
                                 std::to_string(args[i].bytes) + " bytes, " + to_string(decl.kind) +
                                 " has " + std::to_string(size_of(decl.kind)));
    }
    values[i] = const_cast<void*>(args[i].value);
  }
  const int64_t threads = int64_t{shape.block.x} * shape.block.y * shape.block.z;
  const int64_t most = attributes_.max_threads > 0 ? attributes_.max_threads : INT64_MAX;
  if (threads == 0 || threads > most) {
    return bad_args(*this, "a block of " + std::to_string(threads) + " threads is not possible" +
                               (threads == 0 ? "" : "; at most " + std::to_string(most)));
  }
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return {};
  return do_launch(stream, shape, values);
}

}  // namespace laya::jit
