// The choice of the cache directory and the checks on it.
#include "cache/directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

namespace laya::cache {
namespace {

bool is_set(const std::optional<std::string>& value) {
  return value && !value->empty();
}

bool is_absolute(const std::optional<std::string>& value) {
  return is_set(value) && value->front() == '/';
}

std::string error_text(int error) {
  return std::generic_category().message(error);
}

constexpr std::string_view kAdvice = "; set LAYA_CACHE_DIR to a directory of your own";

tl::unexpected<Error> refuse(const std::filesystem::path& directory, const std::string& reason) {
  return fail(ErrorKind::kStoreError,
              "cache directory " + directory.string() + ": " + reason + std::string(kAdvice));
}

/// mkdir -p with mode 0700 for what is new; what is there already is left as it is.
/// Returns errno, or 0.
int make_directories(const std::filesystem::path& directory) {
  if (::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return 0;
  const std::filesystem::path parent = directory.parent_path();
  if (errno != ENOENT || parent.empty() || parent == directory) return errno;
  if (const int error = make_directories(parent); error != 0) return error;
  if (::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return 0;
  return errno;
}

std::string octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

}  // namespace

std::filesystem::path resolve_directory(const DirectoryInputs& inputs) {
  using std::filesystem::path;
  if (is_set(inputs.laya_cache_dir)) return path(*inputs.laya_cache_dir);
  if (is_absolute(inputs.xdg_cache_home)) return path(*inputs.xdg_cache_home) / "laya";
  if (is_absolute(inputs.home)) return path(*inputs.home) / ".cache" / "laya";
  if (is_absolute(inputs.passwd_home)) return path(*inputs.passwd_home) / ".cache" / "laya";
  return {};
}

Result<void> prepare_directory(const std::filesystem::path& directory) {
  if (const int error = make_directories(directory); error != 0) {
    return refuse(directory, "cannot be created: " + error_text(error));
  }
  // stat, not lstat: a symbolic link is as good as the directory that it leads to.
  struct stat info = {};
  if (::stat(directory.c_str(), &info) != 0) return refuse(directory, error_text(errno));
  if (!S_ISDIR(info.st_mode)) return refuse(directory, "is not a directory");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return refuse(directory, "belongs to user " + std::to_string(info.st_uid) + ", not to user " +
                                 std::to_string(::geteuid()) + " or root");
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return refuse(directory, "others can write to it (mode " + octal(info.st_mode) +
                                 "), so they could plant code; make it private with `chmod go-w`");
  }
  return {};
}

}  // namespace laya::cache
