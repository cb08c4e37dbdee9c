#include "tools/row_reader.h"

#include <doctest/doctest.h>

#include <sstream>

using namespace laya;
using namespace laya::tools;

namespace {

std::string parse_error(const std::string& line) {
  const auto row = parse_row(line);
  REQUIRE_FALSE(row);
  CHECK(row.error().kind == ErrorKind::kBadInput);
  return row.error().message;
}

Result<std::vector<model::Row>> read(const std::string& text) {
  std::istringstream input(text);
  return read_rows(input, "rows.jsonl", *model::preset_config("tiny"));
}

std::string read_error(const std::string& text) {
  const auto rows = read(text);
  REQUIRE_FALSE(rows);
  return rows.error().message;
}

constexpr const char* kGood = R"({"ids":[2,7,4,9],"markers":[2],"qtype":1})";

}  // namespace

TEST_CASE("a row is read with all its fields") {
  const auto row = parse_row(kGood);
  REQUIRE(row);
  CHECK(row->ids == std::vector<int32_t>{2, 7, 4, 9});
  CHECK(row->markers == std::vector<int32_t>{2});
  CHECK(row->qtype == 1);
}

TEST_CASE("a line that is no row is refused with what is wrong") {
  CHECK(parse_error("{\"ids\":[1").find("not JSON, column ") == 0);
  CHECK(parse_error("[1]") == "not a JSON object");
  CHECK(parse_error(R"({"ids":[1],"qtype":0})") == "the field \"markers\" is missing");
  CHECK(parse_error(R"({"ids":[1],"markers":[0],"qtype":0,"text":"x"})") ==
        "unknown field \"text\"; allowed are ids, markers, qtype");
  CHECK(parse_error(R"({"ids":7,"markers":[0],"qtype":0})") == "ids is not an array of integers");
  CHECK(parse_error(R"({"ids":[1,2.5],"markers":[0],"qtype":0})") ==
        "ids[1] is 2.5, not a 32-bit integer");
  CHECK(parse_error(R"({"ids":[1],"markers":["a"],"qtype":0})") ==
        "markers[0] is \"a\", not a 32-bit integer");
  CHECK(parse_error(R"({"ids":[1],"markers":[0],"qtype":true})") ==
        "qtype is true, not a 32-bit integer");
}

TEST_CASE("a number beyond 32 bits is refused and not cut") {
  for (const char* number : {"4294967298", "-4294967295", "18446744073709551615", "1e3"}) {
    const std::string line = std::string(R"({"ids":[)") + number + R"(],"markers":[0],"qtype":0})";
    CHECK(parse_error(line).find("ids[0] is ") == 0);
  }
}

TEST_CASE("rows keep their order, blank lines are skipped, a last newline is optional") {
  const auto rows =
      read(std::string(kGood) + "\n\n \r\n" + R"({"ids":[3],"markers":[0],"qtype":0})");
  REQUIRE(rows);
  REQUIRE(rows->size() == 2);
  CHECK((*rows)[1].ids == std::vector<int32_t>{3});
}

TEST_CASE("an error names the file and the line, counting blank ones") {
  CHECK(read_error(std::string(kGood) + "\n\nnonsense\n").find("rows.jsonl:3: not JSON") == 0);
}

TEST_CASE("a row that does not fit the model is refused with its line") {
  const std::string error =
      read_error(std::string(kGood) + "\n" + R"({"ids":[2,7],"markers":[2],"qtype":0})");
  CHECK(error.find("rows.jsonl:2: ") == 0);
  CHECK(error.find("markers") != std::string::npos);
}

TEST_CASE("no rows are no error") {
  const auto rows = read("");
  REQUIRE(rows);
  CHECK(rows->empty());
}
