#include "jit/cpu/host_cpu.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace laya::jit {
namespace {

/// Register state that the system has to save for a feature to be usable.
enum class State { kAny, kAvx, kAvx512, kAmx };

enum class Word { k1Ecx, k1Edx, k7Ebx, k7Ecx, k7Edx, k71Eax, k71Edx, kExtendedEcx };

struct FeatureBit {
  const char* name;  ///< LLVM's
  Word word;
  int bit;
  State state = State::kAny;
};

/// Features that a compiler makes use of by itself, or that kernels ask for. Those that only matter
/// to systems (fsgsbase, invpcid, ...) are left out: they would split caches for nothing.
constexpr FeatureBit kFeatures[] = {
    {"adx", Word::k7Ebx, 19},
    {"aes", Word::k1Ecx, 25},
    {"amx-bf16", Word::k7Edx, 22, State::kAmx},
    {"amx-fp16", Word::k71Eax, 21, State::kAmx},
    {"amx-int8", Word::k7Edx, 25, State::kAmx},
    {"amx-tile", Word::k7Edx, 24, State::kAmx},
    {"avx", Word::k1Ecx, 28, State::kAvx},
    {"avx2", Word::k7Ebx, 5, State::kAvx},
    {"avx512bf16", Word::k71Eax, 5, State::kAvx512},
    {"avx512bitalg", Word::k7Ecx, 12, State::kAvx512},
    {"avx512bw", Word::k7Ebx, 30, State::kAvx512},
    {"avx512cd", Word::k7Ebx, 28, State::kAvx512},
    {"avx512dq", Word::k7Ebx, 17, State::kAvx512},
    {"avx512f", Word::k7Ebx, 16, State::kAvx512},
    {"avx512fp16", Word::k7Edx, 23, State::kAvx512},
    {"avx512ifma", Word::k7Ebx, 21, State::kAvx512},
    {"avx512vbmi", Word::k7Ecx, 1, State::kAvx512},
    {"avx512vbmi2", Word::k7Ecx, 6, State::kAvx512},
    {"avx512vl", Word::k7Ebx, 31, State::kAvx512},
    {"avx512vnni", Word::k7Ecx, 11, State::kAvx512},
    {"avx512vp2intersect", Word::k7Edx, 8, State::kAvx512},
    {"avx512vpopcntdq", Word::k7Ecx, 14, State::kAvx512},
    {"avxifma", Word::k71Eax, 23, State::kAvx},
    {"avxneconvert", Word::k71Edx, 5, State::kAvx},
    {"avxvnni", Word::k71Eax, 4, State::kAvx},
    {"avxvnniint16", Word::k71Edx, 10, State::kAvx},
    {"avxvnniint8", Word::k71Edx, 4, State::kAvx},
    {"bmi", Word::k7Ebx, 3},
    {"bmi2", Word::k7Ebx, 8},
    {"cx16", Word::k1Ecx, 13},
    {"f16c", Word::k1Ecx, 29, State::kAvx},
    {"fma", Word::k1Ecx, 12, State::kAvx},
    {"gfni", Word::k7Ecx, 8},
    {"lzcnt", Word::kExtendedEcx, 5},
    {"movbe", Word::k1Ecx, 22},
    {"pclmul", Word::k1Ecx, 1},
    {"popcnt", Word::k1Ecx, 23},
    {"prfchw", Word::kExtendedEcx, 8},
    {"sahf", Word::kExtendedEcx, 0},
    {"sha", Word::k7Ebx, 29},
    {"sse", Word::k1Edx, 25},
    {"sse2", Word::k1Edx, 26},
    {"sse3", Word::k1Ecx, 0},
    {"sse4.1", Word::k1Ecx, 19},
    {"sse4.2", Word::k1Ecx, 20},
    {"sse4a", Word::kExtendedEcx, 6},
    {"ssse3", Word::k1Ecx, 9},
    {"vaes", Word::k7Ecx, 9, State::kAvx},
    {"vpclmulqdq", Word::k7Ecx, 10, State::kAvx},
};

static_assert(std::is_sorted(std::begin(kFeatures), std::end(kFeatures),
                             [](const FeatureBit& a, const FeatureBit& b) {
                               return std::string_view(a.name) < b.name;
                             }),
              "targets list their features in this order");

uint32_t value_of(const CpuidSnapshot& cpuid, Word word) {
  switch (word) {
    case Word::k1Ecx: return cpuid.leaf1.ecx;
    case Word::k1Edx: return cpuid.leaf1.edx;
    case Word::k7Ebx: return cpuid.leaf7.ebx;
    case Word::k7Ecx: return cpuid.leaf7.ecx;
    case Word::k7Edx: return cpuid.leaf7.edx;
    case Word::k71Eax: return cpuid.leaf7_1.eax;
    case Word::k71Edx: return cpuid.leaf7_1.edx;
    case Word::kExtendedEcx: return cpuid.extended1.ecx;
  }
  return 0;
}

bool is_saved(const CpuidSnapshot& cpuid, State state) {
  const auto saves = [&](uint64_t bits) { return (cpuid.xcr0 & bits) == bits; };
  switch (state) {
    case State::kAny: return true;
    case State::kAvx: return saves(0x06);
    case State::kAvx512: return saves(0xe6);
    case State::kAmx: return saves(0x60000) && cpuid.may_use_amx;
  }
  return false;
}

std::vector<std::string> features_of(const CpuidSnapshot& cpuid) {
  std::vector<std::string> features;
  for (const FeatureBit& feature : kFeatures) {
    const bool is_there = (value_of(cpuid, feature.word) >> feature.bit & 1) != 0;
    if (is_there && is_saved(cpuid, feature.state)) features.emplace_back(feature.name);
  }
  return features;
}

struct Model {
  uint32_t family, model;
};

Model model_of(const CpuidSnapshot& cpuid) {
  const uint32_t signature = cpuid.leaf1.eax;
  uint32_t family = signature >> 8 & 0xf;
  uint32_t model = signature >> 4 & 0xf;
  if (family == 6 || family == 15) model += (signature >> 16 & 0xf) << 4;
  if (family == 15) family += signature >> 20 & 0xff;
  return {family, model};
}

bool contains(const std::vector<std::string>& features, std::string_view name) {
  return std::binary_search(features.begin(), features.end(), name, std::less<>());
}

struct ModelRange {
  uint32_t family, first, last;
  const char* name;
};

/// As LLVM's Host.cpp groups them.
constexpr ModelRange kAmd[] = {
    {0x17, 0x00, 0x2f, "znver1"}, {0x17, 0x30, 0xff, "znver2"}, {0x19, 0x00, 0x0f, "znver3"},
    {0x19, 0x10, 0x1f, "znver4"}, {0x19, 0x20, 0x5f, "znver3"}, {0x19, 0x60, 0xaf, "znver4"},
    {0x1a, 0x00, 0xff, "znver5"},
};

struct IntelModel {
  uint32_t model;
  const char* name;
};

/// Of family 6.
constexpr IntelModel kIntel[] = {
    {0x1a, "nehalem"},        {0x1e, "nehalem"},        {0x2e, "nehalem"},
    {0x25, "westmere"},       {0x2c, "westmere"},       {0x2f, "westmere"},
    {0x2a, "sandybridge"},    {0x2d, "sandybridge"},    {0x3a, "ivybridge"},
    {0x3e, "ivybridge"},      {0x3c, "haswell"},        {0x3f, "haswell"},
    {0x45, "haswell"},        {0x46, "haswell"},        {0x3d, "broadwell"},
    {0x47, "broadwell"},      {0x4f, "broadwell"},      {0x56, "broadwell"},
    {0x4e, "skylake"},        {0x5e, "skylake"},        {0x8e, "skylake"},
    {0x9e, "skylake"},        {0xa5, "skylake"},        {0xa6, "skylake"},
    {0x66, "cannonlake"},     {0x7d, "icelake-client"}, {0x7e, "icelake-client"},
    {0x6a, "icelake-server"}, {0x6c, "icelake-server"}, {0x8c, "tigerlake"},
    {0x8d, "tigerlake"},      {0xa7, "rocketlake"},     {0x8f, "sapphirerapids"},
    {0xcf, "emeraldrapids"},  {0xad, "graniterapids"},  {0xae, "graniterapids-d"},
    {0xaf, "sierraforest"},   {0x97, "alderlake"},      {0x9a, "alderlake"},
    {0xb7, "raptorlake"},     {0xba, "raptorlake"},     {0xbf, "raptorlake"},
    {0xaa, "meteorlake"},     {0xac, "meteorlake"},     {0xc5, "arrowlake"},
    {0xc6, "arrowlake-s"},    {0xbd, "lunarlake"},
};

std::optional<std::string> known_name(const CpuidSnapshot& cpuid,
                                      const std::vector<std::string>& features) {
  const Model model = model_of(cpuid);
  if (cpuid.vendor == "AuthenticAMD") {
    for (const ModelRange& range : kAmd) {
      if (model.family == range.family && model.model >= range.first && model.model <= range.last) {
        return range.name;
      }
    }
  }
  if (cpuid.vendor == "GenuineIntel" && model.family == 6) {
    if (model.model == 0x55) {  // one model number, three generations
      if (contains(features, "avx512bf16")) return "cooperlake";
      return contains(features, "avx512vnni") ? "cascadelake" : "skylake-avx512";
    }
    for (const IntelModel& known : kIntel) {
      if (model.model == known.model) return known.name;
    }
  }
  return std::nullopt;
}

/// The level of the x86-64 ABI that the features reach.
std::string level_of(const std::vector<std::string>& features) {
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(),
                       [&](const char* name) { return contains(features, name); });
  };
  if (!has({"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"})) return "x86-64";
  if (!has({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"})) return "x86-64-v2";
  if (!has({"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"})) return "x86-64-v3";
  return "x86-64-v4";
}

const char* host_arch() {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

/// What LLVM may call a processor or a feature.
bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
}

/// Takes the text up to `separator`, or all of it, from the front of `rest`.
std::string_view take(std::string_view& rest, char separator) {
  const std::string_view head = rest.substr(0, rest.find(separator));
  rest.remove_prefix(std::min(head.size() + 1, rest.size()));
  return head;
}

}  // namespace

Target cpu_target(const CpuidSnapshot& cpuid) {
  const std::vector<std::string> features = features_of(cpuid);
  std::string name = "x86_64:" + known_name(cpuid, features).value_or(level_of(features)) + ":";
  for (const std::string& feature : features) {
    if (name.back() != ':') name += ',';
    name += '+' + feature;
  }
  return {Backend::kCpu, name};
}

const Target& host_cpu_target() {
  static const Target target = host_arch() == std::string_view("x86_64")
                                   ? cpu_target(read_cpuid())
                                   : Target{Backend::kCpu, std::string(host_arch()) + ":generic:"};
  return target;
}

Result<CpuTargetParts> parse_cpu_target(const Target& target) {
  const auto wrong = [&](const std::string& why) {
    return fail(ErrorKind::kBadInput, "'" + target.name + "' is no CPU target: " + why +
                                          "; the form is x86_64:znver4:+avx,+avx2");
  };
  if (target.backend != Backend::kCpu) return wrong("it is for CUDA");
  if (std::count(target.name.begin(), target.name.end(), ':') != 2) {
    return wrong("it needs two colons");
  }
  CpuTargetParts parts;
  if (target.name.ends_with(',')) return wrong("it ends with a comma");
  std::string_view rest = target.name;
  parts.arch = take(rest, ':');
  parts.cpu = take(rest, ':');
  if (!is_name(parts.arch) || !is_name(parts.cpu)) return wrong("architecture or CPU is no name");
  while (!rest.empty()) {
    const std::string_view feature = take(rest, ',');
    if (!feature.starts_with('+') || !is_name(feature.substr(1))) {
      return wrong("'" + std::string(feature) + "' is no feature");
    }
    if (!parts.features.empty() && parts.features.back() >= feature.substr(1)) {
      return wrong("the features are not sorted");
    }
    parts.features.emplace_back(feature.substr(1));
  }
  return parts;
}

bool has_cpu_feature(const Target& target, std::string_view feature) {
  const size_t colon = target.name.rfind(':');
  if (target.backend != Backend::kCpu || colon == std::string::npos) return false;
  std::string_view rest = std::string_view(target.name).substr(colon + 1);
  while (!rest.empty()) {
    const std::string_view item = take(rest, ',');
    if (item.starts_with('+') && item.substr(1) == feature) return true;
  }
  return false;
}

}  // namespace laya::jit
