#include "jit/build_id.h"

#include <doctest/doctest.h>
#include <elf.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace laya::jit {
namespace {

namespace fs = std::filesystem;

class TempFolder {
 public:
  TempFolder() {
    std::string path = (fs::temp_directory_path() / "laya-build-id-XXXXXX").string();
    REQUIRE(mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~TempFolder() { fs::remove_all(path_); }

  fs::path write(const std::string& bytes) const {
    std::ofstream(path_ / "file", std::ios::binary) << bytes;
    return path_ / "file";
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string note(uint32_t type, const std::string& owner, const std::string& text) {
  Elf64_Nhdr header{};
  header.n_namesz = static_cast<uint32_t>(owner.size());
  header.n_descsz = static_cast<uint32_t>(text.size());
  header.n_type = type;
  std::string bytes = bytes_of(header) + owner;
  bytes.resize((bytes.size() + 3) / 4 * 4);
  bytes += text;
  bytes.resize((bytes.size() + 3) / 4 * 4);
  return bytes;
}

const std::string kOwner("GNU", 4);
const std::string kId("\x01\x23\x45\x67\x89\xab\xcd\xef", 8);
constexpr const char* kHex = "0123456789abcdef";

std::string two_notes() {
  return note(NT_GNU_ABI_TAG, kOwner, "abcdef") + note(NT_GNU_BUILD_ID, kOwner, kId);
}

Elf64_Ehdr elf_header() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  return header;
}

std::string file_with_segment(const std::string& notes) {
  Elf64_Ehdr header = elf_header();
  header.e_phoff = sizeof header;
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_NOTE;
  segment.p_offset = sizeof header + sizeof segment;
  segment.p_filesz = notes.size();
  return bytes_of(header) + bytes_of(segment) + notes;
}

std::string file_with_section(const std::string& notes) {
  Elf64_Ehdr header = elf_header();
  header.e_shoff = sizeof header;
  header.e_shnum = 1;
  Elf64_Shdr section{};
  section.sh_type = SHT_NOTE;
  section.sh_offset = sizeof header + sizeof section;
  section.sh_size = notes.size();
  return bytes_of(header) + bytes_of(section) + notes;
}

}  // namespace

TEST_CASE("a build id is read from a segment or from a section") {
  const TempFolder folder;
  CHECK(read_build_id(folder.write(file_with_segment(two_notes()))) == kHex);
  CHECK(read_build_id(folder.write(file_with_section(two_notes()))) == kHex);
}

TEST_CASE("a file without an id has none") {
  const TempFolder folder;
  CHECK(read_build_id(folder.path() / "missing").empty());
  CHECK(read_build_id(folder.path()).empty());
  CHECK(read_build_id(folder.write("")).empty());
  CHECK(read_build_id(folder.write("#!/bin/sh\necho this is not an ELF file\n")).empty());
  CHECK(read_build_id(folder.write(file_with_segment(note(NT_GNU_ABI_TAG, kOwner, kId)))).empty());
  const std::string other_owner("XXX", 4);
  CHECK(read_build_id(folder.write(file_with_segment(note(NT_GNU_BUILD_ID, other_owner, kId))))
            .empty());
}

TEST_CASE("a truncated file gives no id") {
  const TempFolder folder;
  const std::string file = file_with_segment(two_notes());
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    CHECK(read_build_id(folder.write(file.substr(0, bytes))).empty());
  }
}

TEST_CASE("no damaged byte makes reading crash") {
  const TempFolder folder;
  for (const std::string& file : {file_with_segment(two_notes()), file_with_section(two_notes())}) {
    int unreadable = 0;
    for (size_t i = 0; i < file.size(); ++i) {
      std::string damaged = file;
      damaged[i] = static_cast<char>(~damaged[i]);
      unreadable += read_build_id(folder.write(damaged)).empty() ? 1 : 0;
    }
    CHECK(unreadable > 10);
  }
}

}  // namespace laya::jit
