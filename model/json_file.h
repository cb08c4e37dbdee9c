// A JSON object in a file, read field by field with errors that name the file, the field and what
// is allowed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "cache/result.h"

namespace laya::model {

/// The whole file. kBadInput names it and the system's reason.
Result<std::string> read_text_file(const std::filesystem::path& path);

class JsonFile {
 public:
  /// kBadInput: unreadable, larger than 64 MiB, no JSON, or no object.
  static Result<JsonFile> read(std::filesystem::path path);

  /// The field's value, or nullptr if it is absent or null.
  const nlohmann::json* find(std::string_view field) const;

  /// An integer in [min, max]; `fallback` for an absent field, which is an error without one.
  Result<int64_t> integer(std::string_view field, int64_t min, int64_t max,
                          std::optional<int64_t> fallback = {}) const;
  /// A finite number in [min, max].
  Result<double> number(std::string_view field, double min, double max,
                        std::optional<double> fallback = {}) const;

  /// "FILE: FIELD is VALUE, allowed: ALLOWED"
  Error error(std::string_view field, const nlohmann::json* value, std::string_view allowed) const;

  const nlohmann::json& root() const { return root_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  nlohmann::json root_;
};

}  // namespace laya::model
