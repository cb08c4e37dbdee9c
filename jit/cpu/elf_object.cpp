#include "jit/cpu/elf_object.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace laya::jit {
namespace {

/// Far above what a kernel needs; keeps sums of sizes far from overflow.
constexpr uint64_t kMaxSectionBytes = uint64_t{1} << 28;
constexpr uint64_t kMaxAlignment = 4096;

tl::unexpected<Error> damaged(const std::string& what) {
  return fail(ErrorKind::kDeviceError, "the object is damaged: " + what);
}

}  // namespace

class ElfParser {
 public:
  explicit ElfParser(std::string_view bytes) : bytes_(bytes) {}

  Result<ElfObject> parse() {
    LAYA_TRY(read_header());
    LAYA_TRY(read_sections());
    for (const Elf64_Shdr& header : headers_) {
      if (header.sh_type == SHT_SYMTAB) LAYA_TRY(read_symbols(header));
    }
    for (const Elf64_Shdr& header : headers_) {
      if (header.sh_type == SHT_RELA) LAYA_TRY(read_relocations(header));
      if (header.sh_type == SHT_REL) return damaged("x86-64 has no relocations without addend");
    }
    return std::move(object_);
  }

 private:
  bool contains(uint64_t offset, uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }

  /// The entries of a table; copied, since nothing in a string is aligned.
  template <class T>
  Result<std::vector<T>> table(uint64_t offset, uint64_t count, const char* what) const {
    if (count > bytes_.size() / sizeof(T) || !contains(offset, count * sizeof(T))) {
      return damaged(std::string(what) + " lies outside the file");
    }
    std::vector<T> entries(count);
    if (count > 0) std::memcpy(entries.data(), bytes_.data() + offset, count * sizeof(T));
    return entries;
  }

  template <class T>
  Result<std::vector<T>> table(const Elf64_Shdr& header, const char* what) const {
    if (header.sh_entsize != sizeof(T)) return damaged(std::string(what) + " has odd entries");
    return table<T>(header.sh_offset, header.sh_size / sizeof(T), what);
  }

  Result<void> read_header() {
    LAYA_ASSIGN(const auto headers, table<Elf64_Ehdr>(0, 1, "the header"));
    header_ = headers[0];
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) return damaged("it is no ELF file");
    if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB ||
        header_.e_machine != EM_X86_64) {
      return fail(ErrorKind::kDeviceError, "the object is for another machine (ELF number " +
                                               std::to_string(header_.e_machine) +
                                               "); only x86-64 objects can be loaded");
    }
    if (header_.e_type != ET_REL) return damaged("it is no relocatable object");
    if (header_.e_shentsize != sizeof(Elf64_Shdr)) return damaged("odd section headers");
    return {};
  }

  Result<void> read_sections() {
    LAYA_ASSIGN(headers_, table<Elf64_Shdr>(header_.e_shoff, header_.e_shnum, "the section table"));
    if (header_.e_shstrndx >= headers_.size()) return damaged("no section names");
    LAYA_ASSIGN(const std::string_view names, string_table(header_.e_shstrndx));
    for (const Elf64_Shdr& header : headers_) {
      LAYA_ASSIGN(ElfSection section, to_section(header, names));
      object_.sections_.push_back(section);
    }
    return {};
  }

  Result<ElfSection> to_section(const Elf64_Shdr& header, std::string_view names) const {
    ElfSection section;
    section.type = header.sh_type;
    section.flags = header.sh_flags;
    section.size = header.sh_size;
    section.alignment = std::max<uint64_t>(header.sh_addralign, 1);
    LAYA_ASSIGN(section.name, string_at(names, header.sh_name));
    if (section.size > kMaxSectionBytes) return damaged("a section is too large");
    if ((section.alignment & (section.alignment - 1)) != 0 || section.alignment > kMaxAlignment) {
      return damaged("odd alignment of section " + std::string(section.name));
    }
    if (section.type == SHT_NOBITS || section.type == SHT_NULL) return section;
    if (!contains(header.sh_offset, header.sh_size)) {
      return damaged("section " + std::string(section.name) + " lies outside the file");
    }
    section.data = bytes_.substr(header.sh_offset, header.sh_size);
    return section;
  }

  Result<std::string_view> string_table(uint32_t index) const {
    if (index >= headers_.size() || headers_[index].sh_type != SHT_STRTAB ||
        !contains(headers_[index].sh_offset, headers_[index].sh_size)) {
      return damaged("no table of names");
    }
    return bytes_.substr(headers_[index].sh_offset, headers_[index].sh_size);
  }

  static Result<std::string_view> string_at(std::string_view strings, uint64_t offset) {
    if (offset >= strings.size()) return damaged("a name lies outside its table");
    const std::string_view rest = strings.substr(offset);
    const size_t end = rest.find('\0');
    if (end == std::string_view::npos) return damaged("a name has no end");
    return rest.substr(0, end);
  }

  Result<void> read_symbols(const Elf64_Shdr& header) {
    if (!object_.symbols_.empty()) return damaged("two symbol tables");
    LAYA_ASSIGN(const std::string_view names, string_table(header.sh_link));
    LAYA_ASSIGN(const auto entries, table<Elf64_Sym>(header, "the symbol table"));
    object_.symbols_.reserve(entries.size());
    for (const Elf64_Sym& entry : entries) {
      LAYA_ASSIGN(ElfSymbol symbol, to_symbol(entry, names));
      object_.symbols_.push_back(symbol);
    }
    return {};
  }

  Result<ElfSymbol> to_symbol(const Elf64_Sym& entry, std::string_view names) const {
    ElfSymbol symbol;
    LAYA_ASSIGN(symbol.name, string_at(names, entry.st_name));
    symbol.is_global = ELF64_ST_BIND(entry.st_info) != STB_LOCAL;
    // Nothing refers to a file's name; absolute and common symbols are left undefined, so that code
    // which does use one is refused by name.
    if (entry.st_shndx == SHN_UNDEF || entry.st_shndx >= SHN_LORESERVE) return symbol;
    if (entry.st_shndx >= object_.sections_.size() ||
        entry.st_value > object_.sections_[entry.st_shndx].size) {
      return damaged("symbol " + std::string(symbol.name) + " lies outside its section");
    }
    symbol.section = entry.st_shndx;
    symbol.value = entry.st_value;
    return symbol;
  }

  Result<void> read_relocations(const Elf64_Shdr& header) {
    const uint32_t target = header.sh_info;
    if (target >= object_.sections_.size()) return damaged("relocations of no section");
    if ((object_.sections_[target].flags & SHF_ALLOC) == 0) return {};
    LAYA_ASSIGN(const auto entries, table<Elf64_Rela>(header, "a relocation table"));
    // Tables that overlap could otherwise ask for far more memory than the file has bytes.
    const size_t total = object_.relocations_.size() + entries.size();
    if (total > bytes_.size() / sizeof(Elf64_Rela)) return damaged("too many relocations");
    object_.relocations_.reserve(total);
    for (const Elf64_Rela& entry : entries) {
      const auto symbol = static_cast<uint32_t>(ELF64_R_SYM(entry.r_info));
      if (symbol >= object_.symbols_.size()) return damaged("a relocation names no symbol");
      object_.relocations_.push_back({target, entry.r_offset,
                                      static_cast<uint32_t>(ELF64_R_TYPE(entry.r_info)), symbol,
                                      entry.r_addend});
    }
    return {};
  }

  std::string_view bytes_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Shdr> headers_;
  ElfObject object_;
};

Result<ElfObject> ElfObject::parse(std::string_view bytes) {
  return ElfParser(bytes).parse();
}

const ElfSymbol* ElfObject::find(std::string_view name) const {
  const auto at = std::find_if(symbols_.begin(), symbols_.end(), [&](const ElfSymbol& symbol) {
    return symbol.is_global && symbol.is_defined() && symbol.name == name;
  });
  return at == symbols_.end() ? nullptr : &*at;
}

}  // namespace laya::jit
