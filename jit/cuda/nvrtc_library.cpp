#include "jit/cuda/nvrtc_library.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

#include "jit/build_id.h"

namespace laya::jit::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHowToInstall =
    "install the CUDA toolkit 13, or run: pip install nvidia-cuda-nvrtc, or set LAYA_NVRTC to the "
    "path of libnvrtc.so.13";

constexpr const char* kFileNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::optional<fs::path> library_in(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return is_there(path) ? std::optional(path) : std::nullopt;
  for (const char* name : kFileNames) {
    if (is_there(path / name)) return path / name;
  }
  return std::nullopt;
}

/// Entries of `folder` whose name begins with `prefix`, sorted by name, the last first.
std::vector<fs::path> entries(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(prefix)) found.push_back(it->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

/// Links and the files they lead to count once.
std::vector<fs::path> builtins_beside(const fs::path& library) {
  std::vector<fs::path> files;
  for (const fs::path& entry : entries(library.parent_path(), "libnvrtc-builtins.so.")) {
    std::error_code error;
    fs::path file = fs::canonical(entry, error);
    if (!error && std::find(files.begin(), files.end(), file) == files.end()) {
      files.push_back(std::move(file));
    }
  }
  return files;
}

/// Folders named in the dynamic linker's configuration.
void add_linker_folders(std::vector<fs::path>& folders) {
  for (const fs::path& config : entries("/etc/ld.so.conf.d", "")) {
    std::ifstream lines(config);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('/')) folders.emplace_back(line);
    }
  }
}

/// Libraries that pip put under `prefix`/lib/python3*.
void add_python_folders(const fs::path& prefix, std::vector<fs::path>& folders) {
  for (const fs::path& python : entries(prefix / "lib", "python3")) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      folders.push_back(python / packages / "nvidia/cu13/lib");
      folders.push_back(python / packages / "nvidia/cuda_nvrtc/lib");
    }
  }
}

void add_toolkit_folders(const fs::path& root, std::vector<fs::path>& folders) {
  folders.push_back(root / "lib64");
  folders.push_back(root / "lib");
}

}  // namespace

NvrtcLibrary describe_nvrtc(const fs::path& path) {
  NvrtcLibrary nvrtc;
  const auto library = library_in(path);
  if (!library) {
    nvrtc.problem = "no NVRTC at " + path.string() + "; " + std::string(kHowToInstall);
    return nvrtc;
  }
  std::error_code error;
  nvrtc.file = fs::canonical(*library, error);
  nvrtc.builtins = builtins_beside(nvrtc.file);
  std::string identity = read_build_id(nvrtc.file);
  bool is_complete = !identity.empty() && !nvrtc.builtins.empty();
  for (const fs::path& file : nvrtc.builtins) {
    const std::string id = read_build_id(file);
    is_complete = is_complete && !id.empty();
    identity += "+" + id;
  }
  if (is_complete) {
    nvrtc.identity = std::move(identity);
  } else {
    nvrtc.problem = nvrtc.file.string() +
                    (nvrtc.builtins.empty() ? " has no libnvrtc-builtins.so beside it; "
                                            : " or its libnvrtc-builtins.so has no build id; ") +
                    std::string(kHowToInstall);
  }
  return nvrtc;
}

NvrtcLibrary find_nvrtc(std::span<const fs::path> folders) {
  NvrtcLibrary unusable;
  unusable.problem = "NVRTC (the CUDA compiler) is not installed; " + std::string(kHowToInstall);
  for (const fs::path& folder : folders) {
    if (!library_in(folder)) continue;
    NvrtcLibrary found = describe_nvrtc(folder);
    if (!found.identity.empty()) return found;
    if (unusable.file.empty()) unusable = std::move(found);
  }
  return unusable;
}

std::vector<fs::path> nvrtc_folders() {
  std::vector<fs::path> folders;
#ifdef LAYA_CUDA_ROOT
  add_toolkit_folders(LAYA_CUDA_ROOT, folders);
#endif
  add_toolkit_folders("/usr/local/cuda", folders);
  for (const fs::path& root : entries("/usr/local", "cuda-")) add_toolkit_folders(root, folders);
  add_toolkit_folders("/opt/cuda", folders);
  add_linker_folders(folders);
  folders.insert(folders.end(), {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                 "/usr/lib64", "/usr/local/lib"});
  add_python_folders("/usr/local", folders);
  add_python_folders("/usr", folders);
  for (const fs::path& app : entries("/opt", "")) {
    add_python_folders(app, folders);
    add_python_folders(app / ".venv", folders);
  }
  return folders;
}

std::vector<std::string> nvrtc_options(const Target& target) {
  return {
      "-arch=" + target.name,
      "-std=c++20",
      "-default-device",
      "--no-source-include",
      // NVRTC would keep a cache of its own behind our back, and raise this process's stack limit.
      "--no-cache",
      "--modify-stack-limit=false",
  };
}

}  // namespace laya::jit::cuda
