#include "jit/cuda/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace laya::jit::cuda {
namespace {

constexpr uint16_t kMachineCuda = 190;  // EM_CUDA
constexpr uint8_t kOsAbiCuda13 = 0x41;  // as written by CUDA 13; 0x33 before
constexpr size_t kRegistersPerBlock = 65536;
constexpr int kMostThreads = 1024;
constexpr int kWarp = 32;
// From compute capability 9.0 on, a block's shared memory begins with this many bytes that belong
// to the system; ptxas counts them into the section but not into what the kernel asked for.
constexpr int64_t kReservedShared = 1024;

// Records of .nv.info: format, attribute, then a 16-bit value or the size of what follows.
constexpr uint8_t kSizedValue = 4;
enum Attribute : uint8_t {
  kMaxThreads = 0x05,
  kRequiredThreads = 0x10,
  kFrameSize = 0x11,
  kMinStackSize = 0x12,
  kRegisterCount = 0x2f,
};

tl::unexpected<Error> bad(std::string what) {
  return fail(ErrorKind::kBadInput, "damaged cubin: " + std::move(what));
}

/// A read-only view that never leaves its bytes.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size(); }

  template <class T>
  std::optional<T> read(uint64_t offset) const {
    T value;
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof value) return std::nullopt;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

  std::optional<std::string_view> range(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || bytes_.size() - offset < size) return std::nullopt;
    return bytes_.substr(offset, size);
  }

  /// The zero-terminated text at `offset`; empty if it does not end.
  std::string_view text(uint64_t offset) const {
    if (offset >= bytes_.size()) return {};
    const std::string_view rest = bytes_.substr(offset);
    const size_t end = rest.find('\0');
    return end == std::string_view::npos ? std::string_view{} : rest.substr(0, end);
  }

 private:
  std::string_view bytes_;
};

struct Section {
  std::string_view name;
  std::string_view content;  // empty for a section that only takes up memory
  uint64_t size = 0;
  uint32_t type = 0;
  uint32_t link = 0;
};

Result<Elf64_Ehdr> read_header(const Bytes& file) {
  const auto header = file.read<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
    return bad("not an ELF file of " + std::to_string(file.size()) + " bytes");
  }
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != kMachineCuda) {
    return bad("an ELF file, but not for a GPU");
  }
  const bool has_segments = header->e_phnum != 0;
  if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum == 0 ||
      (has_segments && header->e_phentsize != sizeof(Elf64_Phdr))) {
    return bad("no section table");
  }
  return *header;
}

Result<void> check_segments(const Bytes& file, const Elf64_Ehdr& header) {
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = file.read<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment || !file.range(segment->p_offset, segment->p_filesz)) {
      return bad("segment " + std::to_string(i) + " lies outside of the file");
    }
  }
  return {};
}

Result<std::vector<Section>> read_sections(const Bytes& file, const Elf64_Ehdr& header) {
  std::vector<Elf64_Shdr> raw;
  std::vector<Section> sections;
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto section = file.read<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
    if (!section) return bad("section table cut off");
    std::string_view content;
    if (section->sh_type != SHT_NOBITS) {
      const auto range = file.range(section->sh_offset, section->sh_size);
      if (!range) return bad("section " + std::to_string(i) + " lies outside of the file");
      content = *range;
    }
    raw.push_back(*section);
    sections.push_back({{}, content, section->sh_size, section->sh_type, section->sh_link});
  }
  if (header.e_shstrndx >= sections.size()) return bad("no section names");
  const Bytes names(sections[header.e_shstrndx].content);
  for (size_t i = 0; i < sections.size(); ++i) sections[i].name = names.text(raw[i].sh_name);
  return sections;
}

const Section* find(const std::vector<Section>& sections, std::string_view prefix,
                    std::string_view suffix = {}) {
  const auto found = std::find_if(sections.begin(), sections.end(), [&](const Section& section) {
    return section.name.size() == prefix.size() + suffix.size() &&
           section.name.starts_with(prefix) && section.name.ends_with(suffix);
  });
  return found == sections.end() ? nullptr : &*found;
}

/// Number in the symbol table of the function `entry`.
Result<uint32_t> find_entry(const std::vector<Section>& sections, std::string_view entry) {
  const Section* table = find(sections, ".symtab");
  if (table == nullptr || table->link >= sections.size()) return bad("no symbol table");
  const Bytes symbols(table->content);
  const Bytes names(sections[table->link].content);
  for (uint32_t i = 0; uint64_t{i} * sizeof(Elf64_Sym) < symbols.size(); ++i) {
    const auto symbol = symbols.read<Elf64_Sym>(uint64_t{i} * sizeof(Elf64_Sym));
    if (!symbol) return bad("symbol table cut off");
    if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_shndx != SHN_UNDEF &&
        names.text(symbol->st_name) == entry) {
      return i;
    }
  }
  return fail(ErrorKind::kBadInput, "the cubin has no kernel '" + std::string(entry) + "'");
}

/// Calls visit(attribute, value) for each sized record.
template <class Visit>
Result<void> visit_info(std::string_view content, Visit visit) {
  const Bytes info(content);
  for (uint64_t at = 0; at < info.size();) {
    const auto format = info.read<uint8_t>(at);
    const auto attribute = info.read<uint8_t>(at + 1);
    const auto size = info.read<uint16_t>(at + 2);
    if (!size) return bad("kernel information cut off");
    at += 4;
    if (*format != kSizedValue) continue;
    const auto value = info.range(at, *size);
    if (!value) return bad("kernel information cut off");
    visit(*attribute, Bytes(*value));
    at += *size;
  }
  return {};
}

/// The value of a record about one function, if it is about function `symbol`.
std::optional<uint32_t> value_of(const Bytes& record, uint32_t symbol) {
  return record.read<uint32_t>(0) == symbol ? record.read<uint32_t>(4) : std::nullopt;
}

/// Threads of a record that holds three extents.
int threads_of(const Bytes& record) {
  uint64_t threads = 1;
  for (uint64_t i = 0; i < 3; ++i) {
    threads = std::min<uint64_t>(threads * record.read<uint32_t>(4 * i).value_or(1), kMostThreads);
  }
  return static_cast<int>(threads);
}

/// A multiprocessor gives registers to warps in units of 8 per thread and has 64 K for one block.
int threads_by_registers(int registers) {
  const size_t per_warp = (std::max<size_t>(registers, 1) + 7) / 8 * 8 * kWarp;
  return static_cast<int>(std::min<size_t>(kRegistersPerBlock / per_warp * kWarp, kMostThreads));
}

Result<void> read_infos(const std::vector<Section>& sections, std::string_view entry,
                        uint32_t symbol, KernelAttributes& out) {
  if (const Section* common = find(sections, ".nv.info")) {
    LAYA_TRY(visit_info(common->content, [&](uint8_t attribute, const Bytes& record) {
      const auto value = value_of(record, symbol);
      if (!value) return;
      if (attribute == kRegisterCount) out.registers = static_cast<int>(*value & 0xffff);
      // The frame is the kernel's own; the stack includes the functions that it calls.
      if (attribute == kFrameSize || attribute == kMinStackSize) {
        out.local_bytes = std::max<int64_t>(out.local_bytes, *value);
      }
    }));
  }
  out.max_threads = threads_by_registers(out.registers);
  if (const Section* own = find(sections, ".nv.info.", entry)) {
    LAYA_TRY(visit_info(own->content, [&](uint8_t attribute, const Bytes& record) {
      if (attribute == kMaxThreads || attribute == kRequiredThreads) {
        out.max_threads = std::min(out.max_threads, threads_of(record));
      }
    }));
  }
  return {};
}

/// ".nv.constant3" belongs to all kernels, ".nv.constant0.gemm" to one.
int64_t constant_bytes(const std::vector<Section>& sections, std::string_view entry) {
  constexpr std::string_view kConstant = ".nv.constant";
  int64_t sum = 0;
  for (const Section& section : sections) {
    std::string_view name = section.name;
    if (!name.starts_with(kConstant)) continue;
    name.remove_prefix(kConstant.size());
    name.remove_prefix(std::min(name.find_first_not_of("0123456789"), name.size()));
    const bool is_own = name.starts_with('.') && name.substr(1) == entry;
    if (name.empty() || is_own) sum += static_cast<int64_t>(section.content.size());
  }
  return sum;
}

int64_t shared_bytes(const std::vector<Section>& sections, std::string_view entry, int capability) {
  const Section* section = find(sections, ".nv.shared.", entry);
  if (section == nullptr) return 0;
  const auto bytes = static_cast<int64_t>(std::min<uint64_t>(section->size, UINT32_MAX));
  return capability >= 90 ? std::max<int64_t>(bytes - kReservedShared, 0) : bytes;
}

int capability_of(const Elf64_Ehdr& header) {
  const bool is_new = header.e_ident[EI_OSABI] == kOsAbiCuda13;
  return static_cast<int>(is_new ? (header.e_flags >> 8) & 0xff : header.e_flags & 0xff);
}

}  // namespace

Result<Cubin> read_cubin(std::string_view bytes, std::string_view entry) {
  const Bytes file(bytes);
  LAYA_ASSIGN(const Elf64_Ehdr header, read_header(file));
  LAYA_TRY(check_segments(file, header));
  LAYA_ASSIGN(const std::vector<Section> sections, read_sections(file, header));
  LAYA_ASSIGN(const uint32_t symbol, find_entry(sections, entry));
  Cubin cubin;
  cubin.capability = capability_of(header);
  LAYA_TRY(read_infos(sections, entry, symbol, cubin.attributes));
  cubin.attributes.static_shared_bytes = shared_bytes(sections, entry, cubin.capability);
  cubin.attributes.constant_bytes = constant_bytes(sections, entry);
  return cubin;
}

}  // namespace laya::jit::cuda
