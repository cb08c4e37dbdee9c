#include "tools/targets.h"

#include <doctest/doctest.h>

using namespace laya;
using namespace laya::tools;
using model::DType;

TEST_CASE("each target has a dtype of its own unless told otherwise") {
  const auto pairs = parse_target_dtypes({"cpu", "sm_90a", "sm_75"}, {});
  REQUIRE(pairs);
  REQUIRE(pairs->size() == 3);
  CHECK((*pairs)[0].dtype == DType::kF32);
  CHECK((*pairs)[1].dtype == DType::kF16);
  CHECK((*pairs)[2].dtype == DType::kF16);
}

TEST_CASE("pairs that do not exist are left out while each target keeps one") {
  const auto pairs = parse_target_dtypes({"cpu", "sm_75"}, {"bf16", "fp32"});
  REQUIRE(pairs);
  REQUIRE(pairs->size() == 3);
  CHECK((*pairs)[0].dtype == DType::kBF16);
  CHECK((*pairs)[1].dtype == DType::kF32);
  CHECK((*pairs)[2].target.name == "sm_75");
  CHECK((*pairs)[2].dtype == DType::kF32);
}

TEST_CASE("a target that keeps no dtype is an error") {
  const auto pairs = parse_target_dtypes({"sm_90a", "cpu"}, {"fp16"});
  REQUIRE_FALSE(pairs);
  CHECK(pairs.error().kind == ErrorKind::kBadInput);
}

TEST_CASE("an unknown word is named") {
  CHECK(parse_target_dtypes({"sm_90x1"}, {}).error().message.find("sm_90x1") != std::string::npos);
  CHECK(parse_target_dtypes({"cpu"}, {"fp8"}).error().message.find("fp8") != std::string::npos);
}

TEST_CASE("a model is given by a directory or by a preset") {
  CHECK(shape_of({"", "tiny"}));
  CHECK_FALSE(shape_of({"", ""}));
  CHECK_FALSE(shape_of({"somewhere", "tiny"}));
  CHECK_FALSE(shape_of({"", "huge"}));
  CHECK_FALSE(shape_of({"/nonexistent", ""}));
}
