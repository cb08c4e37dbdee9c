#include "jit/cpu/host_cpu.h"

#include <doctest/doctest.h>

#include <string>

namespace laya::jit {
namespace {

constexpr uint64_t kSse = 0x3, kAvx = 0x7, kAvx512 = 0xe7, kAmx = 0x600e7;

/// Family, model and stepping as leaf 1 packs them.
uint32_t signature(uint32_t family, uint32_t model) {
  const uint32_t base = family < 15 ? family : 15;
  return (family - base) << 20 | (model >> 4) << 16 | base << 8 | (model & 15) << 4;
}

/// A processor whose every feature bit is set; what it may use is up to `xcr0`.
CpuidSnapshot everything(const char* vendor, uint32_t family, uint32_t model, uint64_t xcr0) {
  const CpuidLeaf all{~0U, ~0U, ~0U, ~0U};
  CpuidSnapshot cpuid{vendor, all, all, all, all, xcr0, false, "made up"};
  cpuid.leaf1.eax = signature(family, model);
  return cpuid;
}

std::string name_of(const CpuidSnapshot& cpuid) {
  const auto parts = parse_cpu_target(cpu_target(cpuid));
  REQUIRE(parts);
  return parts->cpu;
}

std::string amd(uint32_t family, uint32_t model) {
  return name_of(everything("AuthenticAMD", family, model, kAvx512));
}

std::string intel(uint32_t model) {
  return name_of(everything("GenuineIntel", 6, model, kAmx));
}

}  // namespace

TEST_CASE("known processors have LLVM's names") {
  CHECK(amd(0x17, 0x01) == "znver1");
  CHECK(amd(0x17, 0x31) == "znver2");
  CHECK(amd(0x19, 0x01) == "znver3");
  CHECK(amd(0x19, 0x11) == "znver4");
  CHECK(amd(0x19, 0x61) == "znver4");
  CHECK(amd(0x1a, 0x02) == "znver5");
  CHECK(intel(0x3f) == "haswell");
  CHECK(intel(0x4f) == "broadwell");
  CHECK(intel(0x9e) == "skylake");
  CHECK(intel(0x6a) == "icelake-server");
  CHECK(intel(0x8f) == "sapphirerapids");
  CHECK(intel(0xcf) == "emeraldrapids");
  CHECK(intel(0xad) == "graniterapids");
}

TEST_CASE("generations that share a model number are told apart by features") {
  CpuidSnapshot cpuid = everything("GenuineIntel", 6, 0x55, kAvx512);
  CHECK(name_of(cpuid) == "cooperlake");
  cpuid.leaf7_1.eax = 0;  // no avx512bf16
  CHECK(name_of(cpuid) == "cascadelake");
  cpuid.leaf7.ecx = 0;  // no avx512vnni
  CHECK(name_of(cpuid) == "skylake-avx512");
}

TEST_CASE("an unknown processor gets the level that its features reach") {
  CHECK(name_of(everything("Unheard Of", 99, 1, kAvx512)) == "x86-64-v4");
  CHECK(name_of(everything("Unheard Of", 99, 1, kAvx)) == "x86-64-v3");
  CHECK(name_of(everything("Unheard Of", 99, 1, kSse)) == "x86-64-v2");
  CHECK(name_of(CpuidSnapshot{}) == "x86-64");
}

TEST_CASE("features whose registers the system does not save are left out") {
  const Target full = cpu_target(everything("AuthenticAMD", 0x19, 0x11, kAvx512));
  CHECK(has_cpu_feature(full, "avx512f"));
  CHECK(has_cpu_feature(full, "avx2"));
  const Target avx = cpu_target(everything("AuthenticAMD", 0x19, 0x11, kAvx));
  CHECK_FALSE(has_cpu_feature(avx, "avx512f"));
  CHECK(has_cpu_feature(avx, "avx2"));
  const Target sse = cpu_target(everything("AuthenticAMD", 0x19, 0x11, kSse));
  CHECK_FALSE(has_cpu_feature(sse, "avx"));
  CHECK_FALSE(has_cpu_feature(sse, "fma"));
  CHECK(has_cpu_feature(sse, "sse4.2"));
}

TEST_CASE("AMX needs the system's permission") {
  CpuidSnapshot cpuid = everything("GenuineIntel", 6, 0x8f, kAmx);
  CHECK_FALSE(has_cpu_feature(cpu_target(cpuid), "amx-tile"));
  cpuid.may_use_amx = true;
  CHECK(has_cpu_feature(cpu_target(cpuid), "amx-tile"));
  CHECK(has_cpu_feature(cpu_target(cpuid), "amx-bf16"));
}

TEST_CASE("this machine's target is a target and has what every x86-64 has") {
  const Target& target = host_cpu_target();
  CHECK(target.backend == Backend::kCpu);
  CHECK(&target == &host_cpu_target());
  const auto parts = parse_cpu_target(target);
  REQUIRE(parts);
#if defined(__x86_64__)
  CHECK(parts->arch == "x86_64");
  CHECK(has_cpu_feature(target, "sse2"));
  CHECK(has_cpu_feature(target, "avx2") == static_cast<bool>(__builtin_cpu_supports("avx2")));
  CHECK(has_cpu_feature(target, "fma") == static_cast<bool>(__builtin_cpu_supports("fma")));
  CHECK(has_cpu_feature(target, "avx512f") == static_cast<bool>(__builtin_cpu_supports("avx512f")));
  CHECK(has_cpu_feature(target, "avx512bf16") ==
        static_cast<bool>(__builtin_cpu_supports("avx512bf16")));
#endif
}

TEST_CASE("the parts of a CPU target are read") {
  const auto parts = parse_cpu_target({Backend::kCpu, "x86_64:znver4:+avx,+avx2,+sse4.1"});
  REQUIRE(parts);
  CHECK(parts->arch == "x86_64");
  CHECK(parts->cpu == "znver4");
  CHECK(parts->features == std::vector<std::string>{"avx", "avx2", "sse4.1"});
  const auto bare = parse_cpu_target({Backend::kCpu, "aarch64:generic:"});
  REQUIRE(bare);
  CHECK(bare->features.empty());
}

TEST_CASE("text that is no CPU target is refused") {
  for (const char* name :
       {"", "x86_64", "x86_64:znver4", ":znver4:", "x86_64::+avx", "x86_64:znver4:avx",
        "x86_64:znver4:-avx", "x86_64:znver4:+avx,", "x86_64:znver4:+avx,,+fma", "x86_64:znver4:+",
        "x86_64:znver4:+fma,+avx", "x86_64:znver4:+avx,+avx", "x86_64:znver4:+avx:+fma",
        "x86_64:zn ver4:+avx", "X86:znver4:+avx"}) {
    CAPTURE(name);
    const auto parts = parse_cpu_target({Backend::kCpu, name});
    REQUIRE_FALSE(parts);
    CHECK(parts.error().kind == ErrorKind::kBadInput);
  }
  CHECK_FALSE(parse_cpu_target({Backend::kCuda, "x86_64:znver4:+avx"}));
}

TEST_CASE("a feature is found by its whole name only") {
  const Target target{Backend::kCpu, "x86_64:znver4:+avx512bw,+avx512f"};
  CHECK(has_cpu_feature(target, "avx512f"));
  CHECK(has_cpu_feature(target, "avx512bw"));
  CHECK_FALSE(has_cpu_feature(target, "avx512"));
  CHECK_FALSE(has_cpu_feature(target, "znver4"));
  CHECK_FALSE(has_cpu_feature(target, ""));
}

}  // namespace laya::jit
