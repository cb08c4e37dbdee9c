// The functions outside an object that CPU kernels may call.
#pragma once

#include <string_view>

namespace laya::jit {

/// The address of a function of the C library that a kernel may use: what the compiler itself calls
/// (memcpy, memset, ...) and mathematics in float and double. Null for every other name.
const void* find_external_symbol(std::string_view name);

}  // namespace laya::jit
