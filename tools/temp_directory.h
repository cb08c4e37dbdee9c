// A private directory for measurements, removed at the end.
#pragma once

#include <filesystem>

#include "cache/result.h"

namespace laya::tools {

/// Movable; the moved-from one removes nothing.
class TempDirectory {
 public:
  /// Below the system's directory for temporary files. kUnavailable names it and the reason.
  static Result<TempDirectory> create();

  TempDirectory(TempDirectory&& other) noexcept { path_.swap(other.path_); }
  TempDirectory& operator=(TempDirectory&&) = delete;
  ~TempDirectory();

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TempDirectory(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
};

}  // namespace laya::tools
