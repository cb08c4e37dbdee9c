// A checked view of an ELF64 x86-64 relocatable object in memory: every offset, index and size that
// a caller can see has been compared with the bytes that are there.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cache/result.h"

namespace laya::jit {

struct ElfSection {
  std::string_view name;
  std::string_view data;   ///< empty where the section has no bytes in the file
  uint64_t size = 0;       ///< in memory
  uint64_t alignment = 1;  ///< a power of two
  uint32_t type = 0;       ///< SHT_*
  uint64_t flags = 0;      ///< SHF_*
};

struct ElfSymbol {
  std::string_view name;
  uint32_t section = 0;  ///< index; 0 where the symbol is not defined here
  uint64_t value = 0;    ///< offset in the section, at most its size
  bool is_global = false;
  bool is_defined() const { return section != 0; }
};

struct ElfRelocation {
  uint32_t section = 0;  ///< that it changes
  uint64_t offset = 0;   ///< in it; how many bytes it changes depends on `type`
  uint32_t type = 0;     ///< R_X86_64_*
  uint32_t symbol = 0;   ///< index
  int64_t addend = 0;
};

/// Points into the bytes it was made from, which must outlive it.
class ElfObject {
 public:
  /// kDeviceError says what is wrong with the bytes.
  static Result<ElfObject> parse(std::string_view bytes);

  const std::vector<ElfSection>& sections() const { return sections_; }
  const std::vector<ElfSymbol>& symbols() const { return symbols_; }
  /// Those of sections that are loaded.
  const std::vector<ElfRelocation>& relocations() const { return relocations_; }

  /// A global symbol that is defined here, or null.
  const ElfSymbol* find(std::string_view name) const;

 private:
  friend class ElfParser;
  ElfObject() = default;

  std::vector<ElfSection> sections_;
  std::vector<ElfSymbol> symbols_;
  std::vector<ElfRelocation> relocations_;
};

}  // namespace laya::jit
