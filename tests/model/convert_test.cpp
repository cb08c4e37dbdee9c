#include "model/convert.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/model/support.h"

namespace laya::model {
namespace {

// An fp16 number by its definition.
double defined_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const double fraction = (bits & 0x3ff) / 1024.0;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(fraction, -14);
  return sign * std::ldexp(1.0 + fraction, exponent - 15);
}

template <class From, class To>
std::pair<std::vector<To>, std::optional<size_t>> convert_all(const std::vector<From>& values,
                                                              DType from, DType to) {
  std::vector<To> out(values.size());
  const auto bad = convert(reinterpret_cast<const std::byte*>(values.data()), from,
                           reinterpret_cast<std::byte*>(out.data()), to, values.size());
  return {out, bad};
}

}  // namespace

TEST_CASE("every kind of NaN stays one in 16 bits, with its sign") {
  for (const uint32_t bits : {0x7fffffffU, 0xffffffffU, 0x7f800001U, 0xff800001U, 0x7fc00000U}) {
    CAPTURE(bits);
    const auto value = std::bit_cast<float>(bits);
    for (const float back :
         {fp16_to_float(float_to_fp16(value)), bf16_to_float(float_to_bf16(value))}) {
      CHECK(std::isnan(back));
      CHECK(std::signbit(back) == std::signbit(value));
    }
  }
}

TEST_CASE("every fp16 number converts exactly and back to itself") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = fp16_to_float(half);
    if ((bits & 0x7c00) == 0x7c00) {
      REQUIRE(std::isnan(value) == ((bits & 0x3ff) != 0));
      REQUIRE(std::isnan(value) == std::isnan(fp16_to_float(float_to_fp16(value))));
    } else {
      REQUIRE(static_cast<double>(value) == defined_value(half));
      REQUIRE(float_to_fp16(value) == half);
    }
  }
}

TEST_CASE("fp32 rounds to the nearest fp16 and, in the middle, to the even one") {
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const float low = fp16_to_float(half);
    const float high = fp16_to_float(static_cast<uint16_t>(half + 1));
    const float middle = (low + high) / 2;
    const auto even = static_cast<uint16_t>(half + (half & 1));
    REQUIRE(float_to_fp16(middle) == even);
    REQUIRE(float_to_fp16(std::nextafter(middle, low)) == half);
    REQUIRE(float_to_fp16(std::nextafter(middle, high)) == half + 1);
    REQUIRE(float_to_fp16(-middle) == (even | 0x8000));
  }
  CHECK(float_to_fp16(65519.996F) == 0x7bff);
  CHECK(float_to_fp16(65520.0F) == 0x7c00);
  CHECK(float_to_fp16(std::numeric_limits<float>::infinity()) == 0x7c00);
}

TEST_CASE("fp32 rounds to the nearest bf16 and, in the middle, to the even one") {
  CHECK(bf16_to_float(float_to_bf16(1.0F)) == 1.0F);
  CHECK(float_to_bf16(1.0F + 0x1p-8F) == 0x3f80);
  CHECK(float_to_bf16(1.0F + 3 * 0x1p-8F) == 0x3f82);
  CHECK(float_to_bf16(std::nextafter(1.0F + 0x1p-8F, 2.0F)) == 0x3f81);
  CHECK(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001U)))));
}

TEST_CASE("arrays convert between all dtypes, whatever their length and alignment") {
  std::vector<float> values;
  for (int i = 0; i < 2500; ++i) values.push_back(static_cast<float>(i - 1200) / 64);
  const auto [halves, bad] = convert_all<float, uint16_t>(values, DType::kF32, DType::kF16);
  CHECK_FALSE(bad);
  CHECK(convert_all<uint16_t, float>(halves, DType::kF16, DType::kF32).first == values);
  const auto bf16 = convert_all<uint16_t, uint16_t>(halves, DType::kF16, DType::kBF16).first;
  CHECK(bf16[1201] == float_to_bf16(values[1201]));

  std::vector<std::byte> shifted(values.size() * 4 + 1);
  std::vector<std::byte> out(values.size() * 2 + 1);
  std::memcpy(shifted.data() + 1, values.data(), values.size() * 4);
  CHECK_FALSE(convert(shifted.data() + 1, DType::kF32, out.data() + 1, DType::kF16, values.size()));
  CHECK(std::memcmp(out.data() + 1, halves.data(), halves.size() * 2) == 0);
}

TEST_CASE("the first finite value that the target cannot hold is reported") {
  std::vector<float> values(3000, 65519.0F);
  CHECK_FALSE(convert_all<float, uint16_t>(values, DType::kF32, DType::kF16).second);
  values[10] = std::numeric_limits<float>::infinity();  // not finite to begin with
  values[2100] = -65520.0F;
  values[2200] = 1e30F;
  CHECK(convert_all<float, uint16_t>(values, DType::kF32, DType::kF16).second == 2100);
  values.assign(5, std::numeric_limits<float>::max());
  CHECK(convert_all<float, uint16_t>(values, DType::kF32, DType::kBF16).second == 0);
  CHECK_FALSE(convert_all<float, float>(values, DType::kF32, DType::kF32).second);
  const std::vector<uint16_t> large_bf16 = {float_to_bf16(1.0F), float_to_bf16(1e10F)};
  CHECK(convert_all<uint16_t, uint16_t>(large_bf16, DType::kBF16, DType::kF16).second == 1);
}

}  // namespace laya::model
