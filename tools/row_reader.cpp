#include "tools/row_reader.h"

#include <cstdint>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>

namespace laya::tools {
namespace {

tl::unexpected<Error> bad(std::string message) {
  return fail(ErrorKind::kBadInput, std::move(message));
}

Result<int32_t> parse_int(const nlohmann::json& value, const std::string& field) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= kMax
                        : value.is_number_integer() && value.get<int64_t>() >= -kMax;
  if (!fits) return bad(field + " is " + value.dump().substr(0, 40) + ", not a 32-bit integer");
  return value.get<int32_t>();
}

Result<std::vector<int32_t>> parse_ints(const nlohmann::json& value, const std::string& field) {
  if (!value.is_array()) return bad(field + " is not an array of integers");
  std::vector<int32_t> numbers;
  numbers.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    LAYA_ASSIGN(const int32_t number, parse_int(value[i], field + "[" + std::to_string(i) + "]"));
    numbers.push_back(number);
  }
  return numbers;
}

/// "column 7: syntax error ... unexpected end of input": without the library's own prefix, and
/// without the text it read last, which may end in half a character.
std::string describe(const nlohmann::json::parse_error& error) {
  const std::string text = error.what();
  const size_t begin = text.find("column ");
  if (begin == std::string::npos) return "at byte " + std::to_string(error.byte);
  return text.substr(begin, text.find("; last read") - begin);
}

Result<nlohmann::json> parse_object(std::string_view line) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    return bad("not JSON, " + describe(error));
  }
  if (!object.is_object()) return bad("not a JSON object");
  for (const char* field : {"ids", "markers", "qtype"}) {
    if (!object.contains(field)) return bad("the field \"" + std::string(field) + "\" is missing");
  }
  for (const auto& [field, value] : object.items()) {
    if (field != "ids" && field != "markers" && field != "qtype") {
      return bad("unknown field \"" + field + "\"; allowed are ids, markers, qtype");
    }
  }
  return object;
}

}  // namespace

Result<model::Row> parse_row(std::string_view line) {
  LAYA_ASSIGN(const nlohmann::json object, parse_object(line));
  model::Row row;
  LAYA_ASSIGN(row.ids, parse_ints(object["ids"], "ids"));
  LAYA_ASSIGN(row.markers, parse_ints(object["markers"], "markers"));
  LAYA_ASSIGN(row.qtype, parse_int(object["qtype"], "qtype"));
  return row;
}

Result<std::vector<model::Row>> read_rows(std::istream& input, const std::string& name,
                                          const model::Config& config) {
  std::vector<model::Row> rows;
  std::string line;
  for (int64_t number = 1; std::getline(input, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Result<model::Row> row = parse_row(line);
    Result<void> valid;
    if (!row) {
      valid = tl::make_unexpected(row.error());
    } else {
      valid = model::validate_row(*row, config);
    }
    if (!valid) return bad(name + ":" + std::to_string(number) + ": " + valid.error().message);
    rows.push_back(*std::move(row));
  }
  if (input.bad()) return bad(name + ": cannot be read");
  return rows;
}

}  // namespace laya::tools
