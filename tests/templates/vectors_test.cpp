// Conversion of the CPU's vectors to bf16, on a dense sample of all fp32 bit patterns.
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "model/convert.h"
#include "tests/templates/harness.h"

namespace laya::test {
namespace {

constexpr const char* kTemplate = R"(
//! entry to_bf16
//! arg from  ptr   [n] fp32
//! arg to    ptr   [n] bf16
//! arg n     i32   a multiple of 16
#include "vectors.h"

extern "C" void to_bf16(const fp32* from, bf16* to, int n, Block) {
  for (int i = 0; i < n; i += kWidth) store(to + i, load(from + i));
}
)";

}  // namespace

DEVICE_TEST("vectors: fp32 becomes bf16 as the host rounds it, infinities and NaN too") {
  if (!on.is_cpu()) return;
  std::vector<uint32_t> patterns;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 40009) {
    patterns.push_back(static_cast<uint32_t>(bits));
  }
  // Ties to both sides, infinities, NaN with bits that bf16 has not, the largest finite numbers.
  for (const uint32_t bits : {0x3f808000U, 0x3f818000U, 0x3f808001U, 0x7f800000U, 0xff800000U,
                              0x7f800001U, 0xffffffffU, 0x7f7fffffU, 0x00000001U, 0x80008000U}) {
    patterns.push_back(bits);
  }
  while (patterns.size() % 16 != 0) patterns.push_back(0);
  const size_t count = patterns.size();

  jit::Buffer from = *on.device().allocate(4 * count), to = *on.device().allocate(2 * count);
  std::memcpy(from.data(), patterns.data(), 4 * count);
  REQUIRE(on.engine().add_template("to_bf16", jit::Backend::kCpu, kTemplate).has_value());
  on.launch(jit::KernelSpec("to_bf16", on.target()), {}, from.data(), to.data(),
            static_cast<int>(count));
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    const float value = std::bit_cast<float>(patterns[i]);
    const uint16_t actual = to.as<uint16_t>()[i];
    const bool is_flushed = std::abs(value) < 0x1p-126f && actual == (patterns[i] >> 31) << 15;
    wrong += actual != model::float_to_bf16(value) && !is_flushed;
  }
  CHECK(wrong == 0);
}

}  // namespace laya::test
