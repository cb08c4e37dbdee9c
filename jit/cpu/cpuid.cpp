#include "jit/cpu/cpuid.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstring>

namespace laya::jit {

#if defined(__x86_64__)
namespace {

CpuidLeaf leaf(uint32_t number, uint32_t sub_leaf = 0) {
  CpuidLeaf value;
  if (__get_cpuid_count(number, sub_leaf, &value.eax, &value.ebx, &value.ecx, &value.edx) == 0) {
    return {};
  }
  return value;
}

void append(std::string& text, uint32_t word) {
  char bytes[sizeof word];
  std::memcpy(bytes, &word, sizeof word);
  text.append(bytes, sizeof word);
}

std::string read_vendor() {
  const CpuidLeaf value = leaf(0);
  std::string text;
  for (const uint32_t word : {value.ebx, value.edx, value.ecx}) append(text, word);
  return text;
}

std::string read_brand() {
  std::string text;
  for (uint32_t number = 0x80000002; number <= 0x80000004; ++number) {
    const CpuidLeaf value = leaf(number);
    for (const uint32_t word : {value.eax, value.ebx, value.ecx, value.edx}) append(text, word);
  }
  text.resize(std::strlen(text.c_str()));
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

uint64_t read_xcr0(const CpuidLeaf& leaf1) {
  if ((leaf1.ecx & bit_OSXSAVE) == 0) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

/// Linux hands out AMX's tile data only to processes that have asked for it.
bool may_use_amx() {
  constexpr long kGetPermitted = 0x1022;  // ARCH_GET_XCOMP_PERM
  constexpr uint64_t kTileData = uint64_t{1} << 18;
  uint64_t permitted = 0;
  return syscall(SYS_arch_prctl, kGetPermitted, &permitted) == 0 && (permitted & kTileData) != 0;
}

}  // namespace

CpuidSnapshot read_cpuid() {
  CpuidSnapshot snapshot;
  snapshot.vendor = read_vendor();
  snapshot.leaf1 = leaf(1);
  snapshot.leaf7 = leaf(7);
  if (snapshot.leaf7.eax >= 1) snapshot.leaf7_1 = leaf(7, 1);
  snapshot.extended1 = leaf(0x80000001);
  snapshot.xcr0 = read_xcr0(snapshot.leaf1);
  snapshot.may_use_amx = may_use_amx();
  snapshot.brand = read_brand();
  return snapshot;
}
#else
CpuidSnapshot read_cpuid() {
  return {};
}
#endif

}  // namespace laya::jit
