#include "tools/table.h"

#include <doctest/doctest.h>

using laya::tools::Table;

TEST_CASE("columns are as wide as their widest cell and figures stand to the right") {
  Table table({"name", ">size", "note"});
  table.add_row({"a", "5", "x"});
  table.add_row({"longer", "1234567", ""});
  CHECK(table.to_string() ==
        "name       size  note\n"
        "a             5  x\n"
        "longer  1234567\n");
}

TEST_CASE("a table without headings shows its rows only") {
  Table table({"", ""});
  table.add_row({"a", "b"});
  CHECK(table.to_string() == "a  b\n");
}

TEST_CASE("a short row is filled up with empty cells") {
  Table table({"one", "two"});
  table.add_row({"a"});
  CHECK(table.to_string() == "one  two\na\n");
}
