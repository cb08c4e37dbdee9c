#include "jit/cpu/object_loader.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "jit/cpu/elf_object.h"
#include "jit/cpu/external_symbols.h"

namespace laya::jit {
namespace {

/// One mapping holds everything, so that code reaches its data with 32-bit offsets.
constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;

/// jmp *slot(%rip), padded: how code reaches a function that may be more than 2 GiB away.
constexpr std::array<uint8_t, 8> kStub = {0xff, 0x25, 0, 0, 0, 0, 0xcc, 0xcc};
constexpr uint64_t kStubOperand = 2;  ///< offset of the 32-bit distance in kStub
constexpr uint64_t kStubNext = 6;     ///< where that distance counts from
constexpr uint64_t kSlotBytes = 8;

constexpr uint32_t kNone = UINT32_MAX;

tl::unexpected<Error> refused(const std::string& what) {
  return fail(ErrorKind::kDeviceError, "the object cannot be loaded: " + what);
}

uint64_t round_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

bool uses_slot(uint32_t type) {
  return type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
}

bool is_relative(uint32_t type) {
  return type == R_X86_64_PC32 || type == R_X86_64_PLT32 || type == R_X86_64_PC64;
}

/// Bytes that a relocation changes; 0 for a type that is not supported.
uint64_t width_of(uint32_t type) {
  if (type == R_X86_64_64 || type == R_X86_64_PC64) return 8;
  return is_relative(type) || uses_slot(type) ? 4 : 0;
}

}  // namespace

/// Places sections, stubs and slots in one mapping and fills them.
class ObjectLoader {
 public:
  explicit ObjectLoader(const ElfObject& object)
      : object_(object),
        page_(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))),
        offsets_(object.sections().size(), 0),
        slots_(object.symbols().size(), kNone) {}

  Result<ObjectImage> load(std::string_view entry) {
    LAYA_TRY(place_sections());
    LAYA_TRY(assign_slots());
    LAYA_TRY(map());
    copy_sections();
    fill_slots();
    for (const ElfRelocation& relocation : object_.relocations()) LAYA_TRY(apply(relocation));
    LAYA_TRY(protect());
    LAYA_ASSIGN(image_.entry_, find_entry(entry));
    return std::move(image_);
  }

 private:
  enum Part { kCode, kConstants, kData, kPartCount };

  struct Span {
    uint64_t begin = 0;  ///< in the mapping, a multiple of the page size
    uint64_t size = 0;
  };

  static bool is_loaded(const ElfSection& section) { return (section.flags & SHF_ALLOC) != 0; }

  static Part part_of(const ElfSection& section) {
    if ((section.flags & SHF_EXECINSTR) != 0) return kCode;
    return (section.flags & SHF_WRITE) != 0 ? kData : kConstants;
  }

  static Result<void> check(const ElfSection& section) {
    const std::string name(section.name);
    if ((section.flags & SHF_TLS) != 0) return refused("section " + name + " is thread-local");
    if ((section.flags & SHF_EXECINSTR) != 0 && (section.flags & SHF_WRITE) != 0) {
      return refused("section " + name + " is both writable and executable");
    }
    if (section.type == SHT_INIT_ARRAY || section.type == SHT_FINI_ARRAY ||
        section.type == SHT_PREINIT_ARRAY) {
      return refused("it has constructors or destructors of global variables");
    }
    return {};
  }

  /// Gives each loaded section its offset in its part.
  Result<void> place_sections() {
    for (size_t i = 0; i < offsets_.size(); ++i) {
      const ElfSection& section = object_.sections()[i];
      if (!is_loaded(section)) continue;
      LAYA_TRY(check(section));
      Span& part = parts_[part_of(section)];
      offsets_[i] = round_up(part.size, section.alignment);
      part.size = offsets_[i] + section.size;
      if (part.size > kMaxImageBytes) return refused("it is too large");
    }
    return {};
  }

  /// A slot, which holds an address, and a stub that jumps there, for each symbol that needs one.
  Result<void> assign_slots() {
    for (const ElfRelocation& relocation : object_.relocations()) {
      const ElfSymbol& symbol = object_.symbols()[relocation.symbol];
      if (width_of(relocation.type) == 0) return unsupported(relocation, symbol);
      if (symbol.is_defined() && !is_loaded(object_.sections()[symbol.section])) {
        return refused("it uses " + std::string(symbol.name) + ", which is not loaded");
      }
      if (symbol.is_defined() && !uses_slot(relocation.type)) continue;
      if (slots_[relocation.symbol] != kNone) continue;
      if (!symbol.is_defined() && find_external_symbol(symbol.name) == nullptr) {
        return refused("it uses '" + std::string(symbol.name) +
                       "', which kernels may not call; they may use memcpy, memset and the like, "
                       "and the mathematics of the C library");
      }
      slots_[relocation.symbol] = static_cast<uint32_t>(slot_symbols_.size());
      slot_symbols_.push_back(relocation.symbol);
    }
    return {};
  }

  static tl::unexpected<Error> unsupported(const ElfRelocation& relocation,
                                           const ElfSymbol& symbol) {
    const std::string to = symbol.name.empty() ? "" : " to '" + std::string(symbol.name) + "'";
    if (relocation.type == R_X86_64_32 || relocation.type == R_X86_64_32S) {
      return refused("its reference" + to + " depends on its position; compile with -fPIC");
    }
    return refused("relocation type " + std::to_string(relocation.type) + to + " is not supported");
  }

  Result<void> map() {
    const uint64_t count = slot_symbols_.size();
    stubs_ = round_up(parts_[kCode].size, kStub.size());
    parts_[kCode].size = stubs_ + count * kStub.size();
    slot_table_ = round_up(parts_[kConstants].size, kSlotBytes);
    parts_[kConstants].size = slot_table_ + count * kSlotBytes;
    uint64_t total = 0;
    for (Span& part : parts_) {
      part.begin = total;
      total += round_up(part.size, page_);
    }
    if (total == 0 || total > kMaxImageBytes) return refused("it is empty or too large");
    // Every page is written to below: populating saves one fault for each.
    void* base = mmap(nullptr, total, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (base == MAP_FAILED) return refused("mmap: " + std::generic_category().message(errno));
    image_.base_ = base;
    image_.bytes_ = total;
    return {};
  }

  uint8_t* at(Part part, uint64_t offset) const {
    return static_cast<uint8_t*>(image_.base_) + parts_[part].begin + offset;
  }
  uint8_t* at(uint32_t section, uint64_t offset) const {
    return at(part_of(object_.sections()[section]), offsets_[section] + offset);
  }
  uint8_t* slot(uint32_t index) const { return at(kConstants, slot_table_ + index * kSlotBytes); }
  uint8_t* stub(uint32_t index) const { return at(kCode, stubs_ + index * kStub.size()); }

  const void* address_of(const ElfSymbol& symbol) const {
    return symbol.is_defined() ? at(symbol.section, symbol.value)
                               : find_external_symbol(symbol.name);
  }

  void copy_sections() {
    for (uint32_t i = 0; i < offsets_.size(); ++i) {
      const ElfSection& section = object_.sections()[i];
      if (!is_loaded(section) || section.data.empty()) continue;
      std::memcpy(at(i, 0), section.data.data(), section.data.size());
    }
  }

  void fill_slots() {
    for (uint32_t i = 0; i < slot_symbols_.size(); ++i) {
      const void* address = address_of(object_.symbols()[slot_symbols_[i]]);
      std::memcpy(slot(i), static_cast<const void*>(&address), sizeof address);
      std::memcpy(stub(i), kStub.data(), kStub.size());
      const auto distance = static_cast<int32_t>(slot(i) - (stub(i) + kStubNext));
      std::memcpy(stub(i) + kStubOperand, &distance, sizeof distance);
    }
  }

  /// What a relocation refers to.
  const void* target_of(const ElfRelocation& relocation) const {
    const ElfSymbol& symbol = object_.symbols()[relocation.symbol];
    if (uses_slot(relocation.type)) return slot(slots_[relocation.symbol]);
    if (!symbol.is_defined() && is_relative(relocation.type))
      return stub(slots_[relocation.symbol]);
    return address_of(symbol);
  }

  Result<void> apply(const ElfRelocation& relocation) {
    const ElfSection& section = object_.sections()[relocation.section];
    const uint64_t width = width_of(relocation.type);
    if (section.data.size() < width || relocation.offset > section.data.size() - width) {
      return refused("a relocation lies outside section " + std::string(section.name));
    }
    uint8_t* place = at(relocation.section, relocation.offset);
    // Wrapping on purpose: a damaged addend is caught by the check of the range.
    uint64_t value = reinterpret_cast<uint64_t>(target_of(relocation)) +
                     static_cast<uint64_t>(relocation.addend);
    if (relocation.type != R_X86_64_64) value -= reinterpret_cast<uint64_t>(place);
    const auto distance = static_cast<int64_t>(value);
    if (width == 4 && distance != static_cast<int32_t>(distance)) {
      return refused("a relocation of section " + std::string(section.name) + " is out of range");
    }
    std::memcpy(place, &value, width);  // little-endian: the low bytes come first
    return {};
  }

  Result<void> protect() const {
    LAYA_TRY(protect(kCode, PROT_READ | PROT_EXEC));
    return protect(kConstants, PROT_READ);
  }

  Result<void> protect(Part part, int protection) const {
    if (parts_[part].size == 0) return {};
    if (mprotect(at(part, 0), round_up(parts_[part].size, page_), protection) == 0) return {};
    return refused("mprotect: " + std::generic_category().message(errno));
  }

  Result<void*> find_entry(std::string_view name) const {
    const ElfSymbol* symbol = object_.find(name);
    if (symbol == nullptr) return refused("it has no function '" + std::string(name) + "'");
    const ElfSection& section = object_.sections()[symbol->section];
    if (!is_loaded(section) || part_of(section) != kCode || symbol->value >= section.size) {
      return refused("'" + std::string(name) + "' is not code");
    }
    return at(symbol->section, symbol->value);
  }

  const ElfObject& object_;
  const uint64_t page_;
  std::vector<uint64_t> offsets_;       ///< of each section in its part
  std::vector<uint32_t> slots_;         ///< of each symbol, or kNone
  std::vector<uint32_t> slot_symbols_;  ///< the inverse
  std::array<Span, kPartCount> parts_;
  uint64_t stubs_ = 0;       ///< offset in kCode
  uint64_t slot_table_ = 0;  ///< offset in kConstants
  ObjectImage image_;
};

Result<ObjectImage> ObjectImage::load(std::string_view bytes, std::string_view entry) {
  LAYA_ASSIGN(const ElfObject object, ElfObject::parse(bytes));
  return ObjectLoader(object).load(entry);
}

ObjectImage& ObjectImage::operator=(ObjectImage&& other) noexcept {
  ObjectImage taken(std::move(other));  // so that what this image held is unmapped here
  std::swap(base_, taken.base_);
  std::swap(bytes_, taken.bytes_);
  std::swap(entry_, taken.entry_);
  return *this;
}

ObjectImage::~ObjectImage() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

}  // namespace laya::jit
