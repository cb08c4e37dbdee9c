#include "tools/temp_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace laya::tools {

Result<TempDirectory> TempDirectory::create() {
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / "laya-XXXXXX").string();
  if (!error && mkdtemp(name.data()) == nullptr) {
    error = std::error_code(errno, std::generic_category());
  }
  if (error) {
    return fail(ErrorKind::kUnavailable, "no temporary directory " + name + ": " + error.message());
  }
  return TempDirectory(name);
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace laya::tools
