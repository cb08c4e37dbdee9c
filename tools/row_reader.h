// Rows of `laya predict`: JSON lines such as {"ids":[2,7,4,9],"markers":[2],"qtype":0}.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "cache/result.h"
#include "model/batch.h"
#include "model/config.h"

namespace laya::tools {

/// One line. kBadInput: no JSON object, a field that is missing, unknown or no array of 32-bit
/// integers. Whether the values fit a model is not checked.
Result<model::Row> parse_row(std::string_view line);

/// Every row of `input`, checked against `config`; blank lines are skipped. kBadInput begins with
/// "`name`:LINE: " and says what is wrong.
Result<std::vector<model::Row>> read_rows(std::istream& input, const std::string& name,
                                          const model::Config& config);

}  // namespace laya::tools
