#include "jit/cpu/external_symbols.h"

#include <strings.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

namespace laya::jit {
namespace {

struct ExternalSymbol {
  std::string_view name;
  const void* address;
};

/// `Signature*` picks one of the overloads that <cmath> adds.
template <class Signature>
const void* address_of(Signature* function) {
  return reinterpret_cast<const void*>(function);
}

#define LAYA_PLAIN(name) {#name, address_of(&::name)}
#define LAYA_MATH1(name) {#name, address_of<double(double)>(&::name)}, LAYA_PLAIN(name##f)
#define LAYA_MATH2(name) {#name, address_of<double(double, double)>(&::name)}, LAYA_PLAIN(name##f)

const ExternalSymbol kSymbols[] = {
    LAYA_PLAIN(bcmp),  // NOLINT(bugprone-unsafe-functions): Clang emits calls of it.
    {"memcmp", address_of<int(const void*, const void*, size_t)>(&::memcmp)},
    {"memcpy", address_of<void*(void*, const void*, size_t)>(&::memcpy)},
    {"memmove", address_of<void*(void*, const void*, size_t)>(&::memmove)},
    {"memset", address_of<void*(void*, int, size_t)>(&::memset)},
    LAYA_MATH1(acos),
    LAYA_MATH1(asin),
    LAYA_MATH1(atan),
    LAYA_MATH2(atan2),
    LAYA_MATH1(cbrt),
    LAYA_MATH1(ceil),
    LAYA_MATH2(copysign),
    LAYA_MATH1(cos),
    LAYA_MATH1(cosh),
    LAYA_MATH1(erf),
    LAYA_MATH1(erfc),
    LAYA_MATH1(exp),
    LAYA_MATH1(exp2),
    LAYA_MATH1(expm1),
    LAYA_MATH1(fabs),
    LAYA_MATH1(floor),
    LAYA_MATH2(fmax),
    LAYA_MATH2(fmin),
    LAYA_MATH2(fmod),
    LAYA_MATH2(hypot),
    LAYA_MATH1(log),
    LAYA_MATH1(log10),
    LAYA_MATH1(log1p),
    LAYA_MATH1(log2),
    LAYA_MATH1(nearbyint),
    LAYA_MATH2(pow),
    LAYA_MATH2(remainder),
    LAYA_MATH1(rint),
    LAYA_MATH1(round),
    LAYA_MATH1(sin),
    LAYA_MATH1(sinh),
    LAYA_MATH1(sqrt),
    LAYA_MATH1(tan),
    LAYA_MATH1(tanh),
    LAYA_MATH1(tgamma),
    LAYA_MATH1(trunc),
    {"fma", address_of<double(double, double, double)>(&::fma)},
    LAYA_PLAIN(fmaf),
    {"ldexp", address_of<double(double, int)>(&::ldexp)},
    LAYA_PLAIN(ldexpf),
};

#undef LAYA_PLAIN
#undef LAYA_MATH1
#undef LAYA_MATH2

}  // namespace

const void* find_external_symbol(std::string_view name) {
  const auto at = std::find_if(std::begin(kSymbols), std::end(kSymbols),
                               [&](const ExternalSymbol& symbol) { return symbol.name == name; });
  return at == std::end(kSymbols) ? nullptr : at->address;
}

}  // namespace laya::jit
