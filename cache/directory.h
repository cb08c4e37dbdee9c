// Where the cache lives, as a pure function of what the environment says, and whether that place is
// safe to load code from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cache/result.h"

namespace laya::cache {

/// What decides the directory. Unset and empty mean the same: absent.
struct DirectoryInputs {
  std::optional<std::string> laya_cache_dir;  ///< LAYA_CACHE_DIR
  std::optional<std::string>
      xdg_cache_home;                      ///< XDG_CACHE_HOME; ignored unless absolute, as XDG says
  std::optional<std::string> home;         ///< HOME; ignored unless absolute
  std::optional<std::string> passwd_home;  ///< home directory of the passwd entry
};

/// LAYA_CACHE_DIR, else XDG_CACHE_HOME/laya, else HOME/.cache/laya, else passwd_home/.cache/laya,
/// else empty. Never a shared place such as /tmp.
std::filesystem::path resolve_directory(const DirectoryInputs& inputs);

/// Creates `directory` (mode 0700, parents too) and checks that it belongs to this user or root and
/// that no one else can write to it. kStoreError names the path, the reason and what to do.
Result<void> prepare_directory(const std::filesystem::path& directory);

}  // namespace laya::cache
