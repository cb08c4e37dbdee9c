#include "tools/table.h"

#include <algorithm>
#include <cstdio>

namespace laya::tools {

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    is_figure_.push_back(heading.starts_with('>'));
    if (is_figure_.back()) heading.erase(0, 1);
  }
  rows_.push_back(std::move(headings));
}

void Table::add_row(std::vector<std::string> cells) {
  cells.resize(is_figure_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
  std::vector<size_t> widths(is_figure_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      line += (i == 0 ? "" : "  ") + (is_figure_[i] ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (!line.empty()) text += line + "\n";
  }
  return text;
}

void Table::print() const {
  std::fputs(to_string().c_str(), stdout);
}

}  // namespace laya::tools
