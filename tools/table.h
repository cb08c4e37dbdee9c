// A table for people: columns as wide as their widest cell.
#pragma once

#include <string>
#include <vector>

namespace laya::tools {

class Table {
 public:
  /// A heading that begins with '>' is of a column of figures, aligned to the right.
  /// Where all are empty, no heading is shown.
  explicit Table(std::vector<std::string> headings);

  /// As many cells as there are headings; missing ones are empty.
  void add_row(std::vector<std::string> cells);

  /// The heading and all rows, each line with its newline.
  std::string to_string() const;
  /// Writes to_string() to stdout.
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;  ///< the headings first
  std::vector<bool> is_figure_;                 ///< per column
};

}  // namespace laya::tools
