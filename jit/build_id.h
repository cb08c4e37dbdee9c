// The GNU build id of an ELF file, read without loading it: a compiler's identity.
#pragma once

#include <filesystem>
#include <string>

namespace laya::jit {

/// Lower-case hexadecimal digits; empty if the file does not exist, is no ELF file or has no id.
std::string read_build_id(const std::filesystem::path& file);

}  // namespace laya::jit
