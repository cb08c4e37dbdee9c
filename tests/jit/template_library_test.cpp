#include "jit/template_library.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/temp_dir.h"

using namespace laya;
using namespace laya::jit;

namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

std::vector<std::string> names(const std::vector<Header>& headers) {
  std::vector<std::string> result;
  for (const Header& header : headers) result.push_back(header.name);
  return result;
}

TemplateLibrary empty_library(const test::TempDir& dir) {
  std::filesystem::create_directories(dir.path() / "cuda");
  std::filesystem::create_directories(dir.path() / "cpu");
  auto library = TemplateLibrary::create(dir.path(), {dir.path() / "include"});
  REQUIRE(library);
  return *std::move(library);
}

}  // namespace

TEST_CASE("the templates of both backends have a correct declaration") {
  const auto library = TemplateLibrary::create({}, {});
  REQUIRE_MESSAGE(library, library.error().message);
  for (const char* name :
       {"embed_norm", "gemm", "gemm_geglu", "final_norm", "rope", "attention", "gather_rows"}) {
    CAPTURE(name);
    const auto cuda = library->find(name, Backend::kCuda), cpu = library->find(name, Backend::kCpu);
    REQUIRE(cuda);
    REQUIRE(cpu);
    CHECK((*cuda)->entry == name);
    // Products of a GPU also normalize what they read.
    auto args = (*cuda)->args;
    if (std::string_view(name).starts_with("gemm")) {
      CHECK(std::erase_if(args, [](const auto& arg) {
              return arg.name == "scales" || arg.name == "moments" || arg.name == "eps";
            }) == 3);
    }
    CHECK(args == (*cpu)->args);
  }
}

TEST_CASE("an unknown template is an error that lists the known ones") {
  const auto library = TemplateLibrary::create({}, {});
  REQUIRE(library);
  const auto found = library->find("no_such", Backend::kCpu);
  REQUIRE_FALSE(found);
  CHECK(found.error().kind == ErrorKind::kBadSpec);
  CHECK(found.error().message.find("attention") != std::string::npos);
}

TEST_CASE("headers are found through other headers, in any spelling, once") {
  const test::TempDir dir;
  TemplateLibrary library = empty_library(dir);
  library.add_header("a.h", Backend::kCuda, "#include \"b.h\"\n#include <c.h>\n");
  library.add_header("b.h", Backend::kCuda, "  #  include \"a.h\"\n");
  library.add_header("c.h", Backend::kCuda, "int c;");
  library.add_header("unused.h", Backend::kCuda, "");
  const auto headers = library.reachable_headers("#include\t\"a.h\"\n", Backend::kCuda);
  CHECK(names(headers) == std::vector<std::string>{"a.h", "b.h", "c.h"});
  CHECK(headers[2].text == "int c;");
}

TEST_CASE("headers of one backend are invisible to the other") {
  const test::TempDir dir;
  TemplateLibrary library = empty_library(dir);
  library.add_header("a.h", Backend::kCuda, "");
  CHECK(library.reachable_headers("#include \"a.h\"", Backend::kCpu).empty());
}

TEST_CASE("include directories are searched after registered headers; a missing one is left out") {
  const test::TempDir dir;
  TemplateLibrary library = empty_library(dir);
  write(dir.path() / "include" / "lib" / "x.h", "#include \"a.h\"\n");
  write(dir.path() / "include" / "a.h", "from the directory");
  library.add_header("a.h", Backend::kCpu, "registered");
  const auto headers =
      library.reachable_headers("#include <lib/x.h>\n#include \"missing.h\"\n", Backend::kCpu);
  CHECK(names(headers) == std::vector<std::string>{"a.h", "lib/x.h"});
  CHECK(headers[0].text == "registered");
}

TEST_CASE("a template directory replaces the built-in templates") {
  const test::TempDir dir;
  write(dir.path() / "cuda" / "mine.cu", "//! entry mine\n");
  write(dir.path() / "cuda" / "own.cuh", "int own;");
  std::filesystem::create_directories(dir.path() / "cpu");
  const auto library = TemplateLibrary::create(dir.path(), {});
  REQUIRE(library);
  CHECK(library->find("mine", Backend::kCuda));
  CHECK_FALSE(library->find("gemm", Backend::kCuda));
  CHECK(names(library->reachable_headers("#include \"own.cuh\"", Backend::kCuda)).size() == 1);
}

TEST_CASE("a template directory that cannot be read is named") {
  const auto library = TemplateLibrary::create("/no/such/directory", {});
  REQUIRE_FALSE(library);
  CHECK(library.error().kind == ErrorKind::kBadInput);
  CHECK(library.error().message.find("/no/such/directory/cuda") != std::string::npos);
}
