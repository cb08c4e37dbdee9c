#include "jit/cpu/object_loader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "jit/compilers.h"
#include "tests/jit/elf_builder.h"

namespace laya::jit {
namespace {

using testing::code;
using testing::ElfBuilder;

int call_int(const ObjectImage& image) {
  return reinterpret_cast<int (*)()>(image.entry())();
}

/// The message that loading fails with; empty if it does not fail.
std::string failure(const std::string& object, const char* entry = "f") {
  const auto image = ObjectImage::load(object, entry);
  if (image) return {};
  CHECK(image.error().kind == ErrorKind::kDeviceError);
  return image.error().message;
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

/// `mov $7, %eax; ret`
std::string seven() {
  ElfBuilder elf;
  elf.add_symbol("f", elf.add_code(code("b8 07 00 00 00 c3")), 0);
  return elf.build();
}

/// Uses every kind of section and most kinds of relocation; returns 40 + 2.
std::string rich_object() {
  ElfBuilder elf;
  // mov first(%rip), %eax; mov second@GOT(%rip), %rcx; add (%rcx), %eax; add %eax, sum(%rip);
  // mov sum(%rip), %eax; ret
  const uint16_t text = elf.add_code(
      code("8b 05 00 00 00 00 48 8b 0d 00 00 00 00 03 01 01 05 00 00 00 00 8b 05 00 00 00 00 c3"));
  const uint16_t constants = elf.add_constants(code("28 00 00 00"));
  const uint16_t data = elf.add_data(code("02 00 00 00"));
  const uint16_t bss = elf.add_section(".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, "", 64);
  elf.add_symbol("f", text, 0);
  elf.add_relocation(text, 2, R_X86_64_PC32, elf.add_symbol("first", constants, 0), -4);
  elf.add_relocation(text, 9, R_X86_64_REX_GOTPCRELX, elf.add_symbol("second", data, 0), -4);
  const uint32_t sum = elf.add_symbol("sum", bss, 8);
  elf.add_relocation(text, 17, R_X86_64_PC32, sum, -4);
  elf.add_relocation(text, 23, R_X86_64_PC32, sum, -4);
  return elf.build();
}

}  // namespace

TEST_CASE("a function of a loaded object can be called") {
  const auto image = ObjectImage::load(seven(), "f");
  REQUIRE(image);
  CHECK(call_int(*image) == 7);
  CHECK(image->bytes() > 0);
}

TEST_CASE("code, constants, data and zeroed data are placed and connected") {
  const auto image = ObjectImage::load(rich_object(), "f");
  REQUIRE(image);
  CHECK(call_int(*image) == 42);
  CHECK(call_int(*image) == 84);  // the sum is kept in data that can be written
}

TEST_CASE("a moved image stays loaded and what it replaces is unmapped once") {
  auto first = ObjectImage::load(seven(), "f");
  auto second = ObjectImage::load(rich_object(), "f");
  REQUIRE(first);
  REQUIRE(second);
  *first = std::move(*second);
  CHECK(second->entry() == nullptr);
  CHECK(second->bytes() == 0);
  CHECK(call_int(*first) == 42);
}

TEST_CASE("functions of the C library are reached however far away they are") {
  ElfBuilder elf;
  const uint16_t text = elf.add_code(code("e9 00 00 00 00"));  // jmp sqrt
  elf.add_symbol("f", text, 0);
  elf.add_relocation(text, 1, R_X86_64_PLT32, elf.add_symbol("sqrt", 0, 0), -4);
  const auto image = ObjectImage::load(elf.build(), "f");
  REQUIRE(image);
  CHECK(reinterpret_cast<double (*)(double)>(image->entry())(2.0) == std::sqrt(2.0));
}

TEST_CASE("a 64-bit address in data is filled in") {
  ElfBuilder elf;
  // mov pointer(%rip), %rax; jmp *%rax
  const uint16_t text = elf.add_code(code("48 8b 05 00 00 00 00 ff e0"));
  const uint16_t data = elf.add_data(std::string(8, '\0'));
  elf.add_symbol("f", text, 0);
  elf.add_relocation(text, 3, R_X86_64_PC32, elf.add_symbol("pointer", data, 0), -4);
  elf.add_relocation(data, 0, R_X86_64_64, elf.add_symbol("expf", 0, 0), 0);
  const auto image = ObjectImage::load(elf.build(), "f");
  REQUIRE(image);
  CHECK(reinterpret_cast<float (*)(float)>(image->entry())(1.0F) == std::exp(1.0F));
}

TEST_CASE("a 64-bit distance is filled in") {
  ElfBuilder elf;
  // lea distance(%rip), %rax; add (%rax), %rax; mov (%rax), %eax; ret
  const uint16_t text = elf.add_code(code("48 8d 05 00 00 00 00 48 03 00 8b 00 c3"));
  const uint16_t constants = elf.add_constants(std::string(8, '\0'));
  const uint16_t data = elf.add_data(code("00 00 00 00 2a 00 00 00"));
  elf.add_symbol("f", text, 0);
  elf.add_relocation(text, 3, R_X86_64_PC32, elf.add_symbol("distance", constants, 0), -4);
  elf.add_relocation(constants, 0, R_X86_64_PC64, elf.add_symbol("answer", data, 4), 0);
  const auto image = ObjectImage::load(elf.build(), "f");
  REQUIRE(image);
  CHECK(call_int(*image) == 42);
}

TEST_CASE("nothing is writable and executable at once") {
  const auto image = ObjectImage::load(rich_object(), "f");
  REQUIRE(image);
  const auto entry = reinterpret_cast<uintptr_t>(image->entry());
  std::ifstream maps("/proc/self/maps");
  std::string line, permissions;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string text;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> text;
    if (entry >= begin && entry < end) permissions = text;
  }
  CHECK(permissions == "r-xp");
}

TEST_CASE("a symbol that kernels may not use is named") {
  ElfBuilder elf;
  const uint16_t text = elf.add_code(code("e9 00 00 00 00"));
  elf.add_symbol("f", text, 0);
  elf.add_relocation(text, 1, R_X86_64_PLT32, elf.add_symbol("system", 0, 0), -4);
  CHECK(has(failure(elf.build()), "'system'"));
}

TEST_CASE("position-dependent code is refused with the remedy") {
  ElfBuilder elf;
  const uint16_t text = elf.add_code(code("b8 00 00 00 00 c3"));
  elf.add_symbol("f", text, 0);
  elf.add_relocation(text, 1, R_X86_64_32, elf.add_symbol("x", text, 0), 0);
  CHECK(has(failure(elf.build()), "-fPIC"));
}

TEST_CASE("a distance that does not fit is refused") {
  ElfBuilder elf;
  const uint16_t text = elf.add_code(code("8b 05 00 00 00 00 c3"));
  elf.add_symbol("f", text, 0);
  elf.add_relocation(text, 2, R_X86_64_PC32, elf.add_symbol("x", text, 0), int64_t{1} << 40);
  CHECK(has(failure(elf.build()), "out of range"));
}

TEST_CASE("a relocation must lie inside its section") {
  for (const uint64_t offset : {uint64_t{3}, uint64_t{100}, ~uint64_t{0}}) {
    ElfBuilder elf;
    const uint16_t text = elf.add_code(code("8b 05 00 00 00 c3"));
    elf.add_symbol("f", text, 0);
    elf.add_relocation(text, offset, R_X86_64_PC32, elf.add_symbol("x", text, 0), 0);
    CHECK(has(failure(elf.build()), "outside section .text"));
  }
}

TEST_CASE("what a kernel should not have is refused") {
  const auto with_section = [](uint32_t type, uint64_t flags) {
    ElfBuilder elf;
    elf.add_symbol("f", elf.add_code(code("c3")), 0);
    elf.add_section(".odd", type, SHF_ALLOC | flags, std::string(8, '\0'));
    return failure(elf.build());
  };
  CHECK(has(with_section(SHT_INIT_ARRAY, SHF_WRITE), "constructors"));
  CHECK(has(with_section(SHT_PROGBITS, SHF_WRITE | SHF_TLS), "thread-local"));
  CHECK(has(with_section(SHT_PROGBITS, SHF_WRITE | SHF_EXECINSTR), "writable and executable"));
}

TEST_CASE("the entry must exist and be code") {
  CHECK(has(failure(seven(), "g"), "no function 'g'"));
  ElfBuilder elf;
  elf.add_symbol("f", elf.add_data(std::string(8, '\0')), 0);
  CHECK(has(failure(elf.build()), "'f' is not code"));
}

TEST_CASE("an object for another machine is refused") {
  ElfBuilder elf;
  elf.add_symbol("f", elf.add_code(code("c3")), 0);
  CHECK(has(failure(elf.build(EM_AARCH64)), "only x86-64"));
}

TEST_CASE("a truncated object is refused at every length") {
  const std::string object = rich_object();
  for (size_t bytes = 0; bytes < object.size(); ++bytes) {
    CHECK_FALSE(failure(object.substr(0, bytes)).empty());
  }
}

TEST_CASE("no flipped bit makes loading crash") {
  const std::string object = rich_object();
  int refused = 0;
  for (size_t bit = 0; bit < object.size() * 8; ++bit) {
    std::string damaged = object;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    refused += failure(damaged).empty() ? 0 : 1;
  }
  CHECK(refused > 100);
}

TEST_CASE("no damage to a compiled object makes loading crash") {
  const auto compiler = make_llvm_compiler({});
  if (compiler->identity().empty()) {
    MESSAGE("[SKIP] " << compiler->unavailable_reason());
    return;
  }
  CompileRequest request;
  request.name = "fuzz.cpp";
  request.source =
      "float table[64] = {1, 2, 3};\nconst float* const pointers[] = {table, table + 5};\n"
      "extern \"C\" float expf(float);\n"
      "extern \"C\" void f(float* x, int n) {\n"
      "  for (int i = 0; i < n; ++i) x[i] = expf(x[i]) * pointers[i & 1][i & 7];\n}\n"
      "extern \"C\" void laya_launch(void* const* a, const void*) { f((float*)a[0], 8); }\n";
  request.entry = "f";
  request.target = host_cpu_target();
  request.options = compiler->options(request.target);
  const auto output = compiler->compile(request);
  REQUIRE_MESSAGE(output, output.error().to_string());
  REQUIRE(failure(output->object).empty());

  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string damaged = output->object;
    for (int flips = 1 + round % 4; flips > 0; --flips) {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
    }
    if (round % 5 == 0) damaged.resize(random() % damaged.size());
    refused += failure(damaged).empty() ? 0 : 1;
  }
  CHECK(refused > 800);
}

}  // namespace laya::jit
