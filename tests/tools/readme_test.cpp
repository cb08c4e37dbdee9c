// README.md must not drift away from the code: its table of options and its example program are
// those of the code. Its commands are run by readme_commands_test.py.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "jit/options.h"

namespace {

std::string read(const std::string& path) {
  std::ifstream file(std::string(LAYA_SOURCE_DIR) + "/" + path);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("README's table of options is the option table") {
  std::string table = "| variable | value | default | meaning |\n|---|---|---|---|\n";
  for (const laya::jit::OptionInfo& option : laya::jit::option_table()) {
    table += std::string("| `") + option.variable + "` | " + option.type + " | " +
             option.default_value + " | " + option.meaning + " |\n";
  }
  CAPTURE(table);
  CHECK(read("README.md").find("\n" + table + "\n") != std::string::npos);
}

TEST_CASE("README's example program is the one that the install test builds and runs") {
  const std::string program = read("tests/examples/consumer/main.cpp");
  CHECK(read("README.md").find("```cpp\n" + program + "```\n") != std::string::npos);
}

TEST_CASE("README's CMake example is the one that the install test uses") {
  const std::string project = read("tests/examples/consumer/CMakeLists.txt");
  CHECK(read("README.md").find("```cmake\n" + project + "```\n") != std::string::npos);
}
