#include "jit/cuda/nvrtc_library.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/jit/cuda_support.h"
#include "tests/temp_dir.h"

using namespace laya;
using namespace laya::jit;
using namespace laya::jit::cuda;
using namespace laya::test;

namespace fs = std::filesystem;

namespace {

/// Links an installed NVRTC's files into `folder`.
void link_nvrtc(const NvrtcLibrary& nvrtc, const fs::path& folder) {
  fs::create_directories(folder);
  fs::create_symlink(nvrtc.file, folder / "libnvrtc.so.13");
  for (const fs::path& file : nvrtc.builtins) {
    fs::create_symlink(file, folder / file.filename());
  }
}

}  // namespace

TEST_CASE("where NVRTC is not installed the reason says what to do") {
  const TempDir dir;
  const fs::path folders[] = {dir.path(), dir.path() / "missing"};
  const NvrtcLibrary nvrtc = find_nvrtc(folders);
  CHECK(nvrtc.identity.empty());
  CHECK(nvrtc.problem.find("nvidia-cuda-nvrtc") != std::string::npos);
  CHECK(nvrtc.problem.find("LAYA_NVRTC") != std::string::npos);
}

TEST_CASE("a file that is no library is not taken for NVRTC") {
  const TempDir dir;
  std::ofstream(dir.path() / "libnvrtc.so.13") << "not a library";
  std::ofstream(dir.path() / "libnvrtc-builtins.so.13.0") << "not a library";
  const NvrtcLibrary nvrtc = describe_nvrtc(dir.path());
  CHECK(nvrtc.identity.empty());
  CHECK(nvrtc.problem.find("libnvrtc.so.13") != std::string::npos);
}

TEST_CASE("an NVRTC without its builtins is passed over") {
  if (!has_nvrtc()) return;
  const NvrtcLibrary installed = find_nvrtc(nvrtc_folders());
  const TempDir dir;
  // A copy and not a link, which would lead to the folder that has the builtins; of a smaller
  // library, since only the name and the build id count here.
  fs::create_directories(dir.path() / "broken");
  fs::copy_file(installed.builtins.front(), dir.path() / "broken" / "libnvrtc.so.13");
  const NvrtcLibrary broken = describe_nvrtc(dir.path() / "broken");
  CHECK(broken.identity.empty());
  CHECK(broken.problem.find("libnvrtc-builtins") != std::string::npos);

  link_nvrtc(installed, dir.path() / "whole");
  const fs::path folders[] = {dir.path() / "broken", dir.path() / "whole"};
  CHECK(find_nvrtc(folders).identity == installed.identity);
}

TEST_CASE("the identity follows the build and not the path") {
  if (!has_nvrtc()) return;
  const NvrtcLibrary installed = find_nvrtc(nvrtc_folders());
  const TempDir dir;
  link_nvrtc(installed, dir.path());
  CHECK(describe_nvrtc(dir.path()).identity == installed.identity);
  CHECK(describe_nvrtc(dir.path() / "libnvrtc.so.13").identity == installed.identity);
  CHECK(installed.identity == nvrtc().identity());
  // Both halves of the compiler are in it.
  CHECK(installed.identity.find('+') != std::string::npos);
}
