#include "model/json_file.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

namespace laya::model {
namespace {

constexpr std::uintmax_t kMaxBytes = std::uintmax_t{64} << 20;
constexpr size_t kShownValue = 80;  // characters of a value that a message repeats

std::string shown(const nlohmann::json* value) {
  if (value == nullptr) return "missing";
  std::string text = value->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kShownValue) text = text.substr(0, kShownValue) + "...";
  return text;
}

template <class T>
std::string range_text(std::string_view what, T min, T max) {
  return std::string(what) + " from " + nlohmann::json(min).dump() + " to " +
         nlohmann::json(max).dump();
}

}  // namespace

Result<std::string> read_text_file(const std::filesystem::path& path) {
  std::error_code status;
  const auto size = std::filesystem::file_size(path, status);
  if (status) {
    return fail(ErrorKind::kBadInput, "cannot read " + path.string() + ": " + status.message());
  }
  if (size > kMaxBytes) {
    return fail(ErrorKind::kBadInput, path.string() + " has " + std::to_string(size) +
                                          " bytes, allowed: at most " + std::to_string(kMaxBytes));
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(size, '\0');
  if (!stream.read(text.data(), static_cast<std::streamsize>(size))) {
    return fail(ErrorKind::kBadInput, "cannot read " + path.string() + ": " + std::strerror(errno));
  }
  return text;
}

Result<JsonFile> JsonFile::read(std::filesystem::path path) {
  LAYA_ASSIGN(const std::string text, read_text_file(path));
  JsonFile file;
  file.path_ = std::move(path);
  try {
    file.root_ = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& failure) {
    return fail(ErrorKind::kBadInput, file.path_.string() + " is not JSON: " + failure.what());
  }
  if (!file.root_.is_object()) {
    return fail(ErrorKind::kBadInput, file.path_.string() + " does not hold a JSON object");
  }
  return file;
}

const nlohmann::json* JsonFile::find(std::string_view field) const {
  const auto found = root_.find(field);
  return found == root_.end() || found->is_null() ? nullptr : &*found;
}

Result<int64_t> JsonFile::integer(std::string_view field, int64_t min, int64_t max,
                                  std::optional<int64_t> fallback) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr && fallback) return *fallback;
  const bool fits = value != nullptr && value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= uint64_t(INT64_MAX));
  if (fits && value->get<int64_t>() >= min && value->get<int64_t>() <= max) {
    return value->get<int64_t>();
  }
  return tl::make_unexpected(error(field, value, range_text("an integer", min, max)));
}

Result<double> JsonFile::number(std::string_view field, double min, double max,
                                std::optional<double> fallback) const {
  const nlohmann::json* value = find(field);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_number()) {
    const double number = value->get<double>();
    if (number >= min && number <= max) return number;
  }
  return tl::make_unexpected(error(field, value, range_text("a number", min, max)));
}

Error JsonFile::error(std::string_view field, const nlohmann::json* value,
                      std::string_view allowed) const {
  return Error{ErrorKind::kBadInput,
               path_.string() + ": " + std::string(field) + " is " + shown(value) +
                   ", allowed: " + std::string(allowed),
               {}};
}

}  // namespace laya::model
