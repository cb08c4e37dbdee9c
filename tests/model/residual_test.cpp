#include "model/residual.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace laya::model {
namespace {

constexpr float kValues[] = {0.0F,  -0.0F,    1.0F,    -1.0F,    0.1F,      -3.14159F, 1.00390625F,
                             1e-6F, 1234.56F, 30000.F, -65504.F, 999999.0F, -1e-20F,   3e38F};

TEST_CASE("two bf16 hold an fp32 bit by bit, the upper one rounded to nearest") {
  for (const float value : kValues) {
    CAPTURE(value);
    const SplitFloat parts = split_residual(value, DType::kBF16);
    const float joined = join_residual(parts, DType::kBF16);
    CHECK(std::bit_cast<uint32_t>(joined) == std::bit_cast<uint32_t>(value));
    CHECK(std::fabs(bf16_to_float(parts.upper) - value) <= std::fabs(value) * 0x1p-8F);
  }
  for (const float value :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    const float joined = join_residual(split_residual(value, DType::kBF16), DType::kBF16);
    CHECK(std::bit_cast<uint32_t>(joined) == std::bit_cast<uint32_t>(value));
  }
}

TEST_CASE("two fp16 hold 22 bits of values up to a million, the upper one rounded to nearest") {
  for (const float value : kValues) {
    if (std::fabs(value) > 1e6F) continue;
    CAPTURE(value);
    const SplitFloat parts = split_residual(value, DType::kF16);
    const float joined = join_residual(parts, DType::kF16);
    CHECK(std::fabs(joined - value) <= std::fmax(std::fabs(value) * 0x1p-22F, 1e-9F));
    const float upper = fp16_to_float(parts.upper) * kFp16ResidualUnit;
    CHECK(std::fabs(upper - value) <= std::fmax(std::fabs(value) * 0x1p-11F, 5e-7F));
  }
}

}  // namespace
}  // namespace laya::model
