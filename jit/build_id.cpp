#include "jit/build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace laya::jit {
namespace {

/// Bounds on what a damaged file can make us read.
constexpr uint64_t kMaxHeaders = 4096;
constexpr uint64_t kMaxNoteBytes = 1 << 20;

/// A file open for reading. It is read and not mapped: a process that only asks for an id must not
/// have a compiler in its memory map.
class File {
 public:
  explicit File(const std::filesystem::path& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }

  /// False if the file does not hold `bytes` bytes at `offset`.
  bool read(uint64_t offset, void* out, size_t bytes) const {
    auto* at = static_cast<char*>(out);
    while (bytes > 0) {
      if (offset > INT64_MAX) return false;
      const ssize_t got = pread(fd_, at, bytes, static_cast<off_t>(offset));
      if (got <= 0) return false;
      at += got;
      offset += static_cast<uint64_t>(got);
      bytes -= static_cast<size_t>(got);
    }
    return true;
  }

  template <class T>
  std::vector<T> read_array(uint64_t offset, uint64_t count, uint64_t max_count) const {
    if (count > max_count) return {};
    std::vector<T> values(count);
    if (!read(offset, values.data(), count * sizeof(T))) return {};
    return values;
  }

 private:
  int fd_;
};

std::string to_hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[(byte >> 4) & 15];
    text += kDigits[byte & 15];
  }
  return text;
}

/// The id in a list of notes; notes and their parts are padded to four bytes.
std::string find_in_notes(std::string_view notes) {
  const auto padded = [](uint64_t bytes) { return (bytes + 3) & ~uint64_t{3}; };
  Elf64_Nhdr note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    notes.remove_prefix(sizeof note);
    const uint64_t name_bytes = padded(note.n_namesz);
    if (name_bytes > notes.size() || note.n_descsz > notes.size() - name_bytes) return {};
    const bool is_gnu = notes.substr(0, note.n_namesz) == std::string_view("GNU\0", 4);
    if (is_gnu && note.n_type == NT_GNU_BUILD_ID) {
      return to_hex(notes.substr(name_bytes, note.n_descsz));
    }
    notes.remove_prefix(std::min<uint64_t>(name_bytes + padded(note.n_descsz), notes.size()));
  }
  return {};
}

std::string find_at(const File& file, uint64_t offset, uint64_t bytes) {
  const std::vector<char> notes = file.read_array<char>(offset, bytes, kMaxNoteBytes);
  return find_in_notes({notes.data(), notes.size()});
}

bool is_elf64(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB;
}

}  // namespace

std::string read_build_id(const std::filesystem::path& path) {
  const File file(path);
  Elf64_Ehdr header;
  if (!file.read(0, &header, sizeof header) || !is_elf64(header)) return {};
  if (header.e_phentsize == sizeof(Elf64_Phdr)) {
    for (const auto& segment :
         file.read_array<Elf64_Phdr>(header.e_phoff, header.e_phnum, kMaxHeaders)) {
      if (segment.p_type != PT_NOTE) continue;
      if (std::string id = find_at(file, segment.p_offset, segment.p_filesz); !id.empty())
        return id;
    }
  }
  // Relocatable objects and some stripped files have sections only.
  if (header.e_shentsize == sizeof(Elf64_Shdr)) {
    for (const auto& section :
         file.read_array<Elf64_Shdr>(header.e_shoff, header.e_shnum, kMaxHeaders)) {
      if (section.sh_type != SHT_NOTE) continue;
      if (std::string id = find_at(file, section.sh_offset, section.sh_size); !id.empty())
        return id;
    }
  }
  return {};
}

}  // namespace laya::jit
