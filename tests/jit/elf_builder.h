// Builds small ELF64 x86-64 relocatable objects, so that the loader is tested without a compiler.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace laya::jit::testing {

class ElfBuilder {
 public:
  ElfBuilder() {
    add_section("", SHT_NULL, 0, "");
    symbols_.push_back({});
  }

  /// Returns the section's index. `memory_bytes` is for SHT_NOBITS.
  uint16_t add_section(const std::string& name, uint32_t type, uint64_t flags,
                       const std::string& data, uint64_t memory_bytes = 0) {
    sections_.push_back({name, data, {}});
    Elf64_Shdr& header = sections_.back().header;
    header.sh_type = type;
    header.sh_flags = flags;
    header.sh_size = type == SHT_NOBITS ? memory_bytes : data.size();
    header.sh_addralign = type == SHT_NULL ? 0 : 16;
    return static_cast<uint16_t>(sections_.size() - 1);
  }
  uint16_t add_code(const std::string& code) {
    return add_section(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, code);
  }
  uint16_t add_constants(const std::string& data) {
    return add_section(".rodata", SHT_PROGBITS, SHF_ALLOC, data);
  }
  uint16_t add_data(const std::string& data) {
    return add_section(".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, data);
  }

  /// Returns the symbol's index. Section 0: not defined here.
  uint32_t add_symbol(const std::string& name, uint16_t section, uint64_t value) {
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<uint32_t>(strings_.size());
    symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE);
    symbol.st_shndx = section;
    symbol.st_value = value;
    strings_ += name + '\0';
    symbols_.push_back(symbol);
    return static_cast<uint32_t>(symbols_.size() - 1);
  }

  void add_relocation(uint16_t section, uint64_t offset, uint32_t type, uint32_t symbol,
                      int64_t addend) {
    relocations_.push_back({section, {offset, ELF64_R_INFO(uint64_t{symbol}, type), addend}});
  }

  std::string build(uint16_t machine = EM_X86_64) const {
    std::vector<Section> sections = sections_;
    const auto append = [&](const std::string& name, uint32_t type, const std::string& data,
                            uint64_t entry_bytes, uint32_t link, uint32_t info) {
      Elf64_Shdr header{};
      header.sh_type = type;
      header.sh_size = data.size();
      header.sh_addralign = 8;
      header.sh_entsize = entry_bytes;
      header.sh_link = link;
      header.sh_info = info;
      sections.push_back({name, data, header});
    };
    const auto strings = static_cast<uint32_t>(sections.size());
    append(".strtab", SHT_STRTAB, strings_, 0, 0, 0);
    append(".symtab", SHT_SYMTAB, bytes_of(symbols_), sizeof(Elf64_Sym), strings, 1);
    for (uint32_t target = 0; target < sections_.size(); ++target) {
      std::vector<Elf64_Rela> entries;
      for (const Relocation& relocation : relocations_) {
        if (relocation.section == target) entries.push_back(relocation.entry);
      }
      if (entries.empty()) continue;
      append(".rela", SHT_RELA, bytes_of(entries), sizeof(Elf64_Rela), strings + 1, target);
    }
    append(".shstrtab", SHT_STRTAB, std::string(1, '\0'), 0, 0, 0);
    return assemble(std::move(sections), machine);
  }

 private:
  struct Section {
    std::string name;
    std::string data;
    Elf64_Shdr header;
  };
  struct Relocation {
    uint16_t section;
    Elf64_Rela entry;
  };

  template <class T>
  static std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  static std::string assemble(std::vector<Section> sections, uint16_t machine) {
    std::string& names = sections.back().data;
    for (Section& section : sections) {
      section.header.sh_name = static_cast<uint32_t>(names.size());
      names += section.name + '\0';
    }
    sections.back().header.sh_size = names.size();

    std::string file(sizeof(Elf64_Ehdr), '\0');
    std::vector<Elf64_Shdr> headers;
    for (Section& section : sections) {
      file.resize((file.size() + 15) / 16 * 16, '\0');
      section.header.sh_offset = file.size();
      file += section.data;
      headers.push_back(section.header);
    }
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_REL;
    header.e_machine = machine;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(headers.size());
    header.e_shstrndx = static_cast<uint16_t>(headers.size() - 1);
    header.e_shoff = file.size();
    std::memcpy(file.data(), &header, sizeof header);
    return file + bytes_of(headers);
  }

  std::vector<Section> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<Relocation> relocations_;
  std::string strings_ = std::string(1, '\0');
};

/// Bytes of machine code, written as hexadecimal pairs: code("b8 01 00 00 00 c3").
inline std::string code(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 3) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace laya::jit::testing
