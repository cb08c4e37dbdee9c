// What can be known about NVRTC without loading it: where it is, which build it is, and the options
// that we pass to it.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "jit/target.h"

namespace laya::jit::cuda {

/// An installed NVRTC. `identity` is empty if it cannot be used: then `problem` says why.
struct NvrtcLibrary {
  std::filesystem::path file;
  /// libnvrtc-builtins.so.MAJOR.MINOR beside it: the part of the compiler that NVRTC opens by name.
  std::vector<std::filesystem::path> builtins;
  std::string identity;  ///< GNU build ids of all of these files
  std::string problem;
};

/// Describes NVRTC at `path`: the library file, or a folder that holds it.
NvrtcLibrary describe_nvrtc(const std::filesystem::path& path);

/// The first usable one in `folders`; else one whose `problem` says what to install.
NvrtcLibrary find_nvrtc(std::span<const std::filesystem::path> folders);

/// Where NVRTC may be on this machine, in order of preference: the toolkit of the build, other
/// toolkits (newest first), the folders of the dynamic linker, Python packages.
std::vector<std::filesystem::path> nvrtc_folders();

/// Canonical options for a target, in order; they are part of a kernel's key.
std::vector<std::string> nvrtc_options(const Target& target);

}  // namespace laya::jit::cuda
