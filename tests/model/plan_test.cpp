#include "model/plan.h"

#include <algorithm>
#include <limits>

#include "tests/model/support.h"

namespace laya::model {
namespace {

using test::contains;
using test::message_of;
using test::value_of;

const jit::Target kHopper{jit::Backend::kCuda, "sm_90a"};

Plan plan_of(const char* preset, DType dtype, const jit::Target& target) {
  return make_plan(value_of(preset_config(preset)), {DType::kF16, dtype}, target);
}

std::vector<std::string> names_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const jit::KernelSpec& spec : plan.specs()) names.push_back(spec.to_string());
  return names;
}

}  // namespace

TEST_CASE("a plan is the same every time and names each kernel once") {
  for (const char* preset : {"tiny", "base", "large"}) {
    for (const jit::Target& target : {kHopper, jit::host_cpu_target()}) {
      std::vector<std::string> names = names_of(plan_of(preset, DType::kF32, target));
      CHECK(names == names_of(plan_of(preset, DType::kF32, target)));
      const size_t count = names.size();
      std::sort(names.begin(), names.end());
      names.erase(std::unique(names.begin(), names.end()), names.end());
      CHECK(names.size() == count);
    }
  }
}

TEST_CASE("variants of an operation cover all row counts in ascending order") {
  const Plan plan = plan_of("large", DType::kF16, kHopper);
  for (const Op* op : plan.ops()) {
    if (op->variants.empty()) continue;
    int64_t last = 0;
    for (const Variant& variant : op->variants) {
      CHECK(variant.max_rows > last);
      last = variant.max_rows;
      CHECK(variant.rule.rows_per_block >= 1);
      CHECK(variant.rule.threads >= 1);
    }
    CHECK(last == std::numeric_limits<int64_t>::max());
  }
}

TEST_CASE("of Hopper's kernels those with most code come first") {
  const std::vector<jit::KernelSpec> specs = plan_of("base", DType::kBF16, kHopper).specs();
  const auto place = [&](const char* name, const char* tile) {
    const auto at = std::find_if(specs.begin(), specs.end(), [&](const jit::KernelSpec& spec) {
      return spec.template_name() == name && contains(spec.to_string(), tile);
    });
    REQUIRE(at != specs.end());
    return at - specs.begin();
  };
  CHECK(place("gemm_residual_sm90", "BM=128,BN=192,CLUSTER=1,CONSUMERS=2,K=3072") < 16);
  CHECK(place("gemm_rope_sm90", "BM=128,BN=64,CLUSTER=2") < 16);
  CHECK(place("attention_sm90", "BQ=128") < 16);
  CHECK(place("gemm_residual_sm90", "BM=64,BN=32") > 16);
}

TEST_CASE("attention and matrix products, the longest compiles, come first") {
  for (const jit::Target& target : {kHopper, jit::host_cpu_target()}) {
    bool small_seen = false;
    for (const jit::KernelSpec& spec : plan_of("base", DType::kF32, target).specs()) {
      const std::string& name = spec.template_name();
      const bool is_large = name.starts_with("attention") || name.starts_with("gemm");
      small_seen = small_seen || !is_large;
      CHECK_FALSE((is_large && small_seen));
    }
  }
}

TEST_CASE("only the CPU packs its weights") {
  const Plan cpu = plan_of("base", DType::kF32, jit::host_cpu_target());
  CHECK_FALSE(cpu.qkv.pack.variants.empty());
  CHECK(cpu.mlp_in.stored_elements >= cpu.mlp_in.rows * cpu.mlp_in.columns);
  CHECK(cpu.mlp_in.rows == 2 * 1152);
  const Plan gpu = plan_of("base", DType::kF16, kHopper);
  CHECK(gpu.qkv.pack.variants.empty());
  CHECK(gpu.mlp_in.stored_elements == gpu.mlp_in.rows * gpu.mlp_in.columns);
}

TEST_CASE("norms are kernels of their own on the CPU and part of products on GPUs") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Plan cpu = plan_of("base", dtype, jit::host_cpu_target());
    CHECK_FALSE(cpu.folds_norms());
    CHECK(cpu.row_scales.variants.empty());
    const Plan gpu = plan_of("base", dtype, kHopper);
    CHECK(gpu.folds_norms());
    CHECK_FALSE(gpu.row_scales.variants.empty());
  }
}

TEST_CASE("the decision is computed in fp32 whatever the dtype") {
  const Plan plan = plan_of("base", DType::kBF16, kHopper);
  CHECK(plan.scorer_hidden.dtype == DType::kF32);
  const Plan cpu = plan_of("base", DType::kBF16, jit::host_cpu_target());
  CHECK(cpu.scorer_hidden.dtype == DType::kF32);
  CHECK(contains(cpu.scorer_hidden.multiply.choose(1).spec.to_string(), "T=fp32"));
  CHECK(contains(plan.qkv.multiply.choose(1).spec.to_string(), "T=bf16"));
  CHECK(contains(plan.embed_norm.choose(1).spec.to_string(), "E=fp16"));
}

TEST_CASE("the decision is two kernels on GPUs and four on the CPU") {
  const Plan gpu = plan_of("base", DType::kF16, kHopper);
  const Plan cpu = plan_of("base", DType::kF32, jit::host_cpu_target());
  for (const auto& op : {&Plan::decision_hidden, &Plan::decision}) {
    CHECK_FALSE((gpu.*op).variants.empty());
    CHECK((cpu.*op).variants.empty());
  }
  for (const auto& op : {&Plan::scorer_norm, &Plan::score, &Plan::action_head}) {
    CHECK((gpu.*op).variants.empty());
    CHECK_FALSE((cpu.*op).variants.empty());
  }
  CHECK(gpu.scorer_hidden.multiply.variants.empty());
  CHECK_FALSE(cpu.scorer_hidden.multiply.variants.empty());
}

TEST_CASE("a model without sliding layers needs no sliding attention") {
  Config config = value_of(preset_config("tiny"));
  config.sliding.assign(config.sliding.size(), false);
  const Plan plan = make_plan(config, {}, jit::host_cpu_target());
  CHECK(plan.sliding_attention.variants.empty());
  for (const std::string& name : names_of(plan)) CHECK_FALSE(contains(name, "WINDOW=64"));
}

TEST_CASE("dtypes that a processor lacks are refused with those it has") {
  CHECK(check_precision(DType::kF32, jit::host_cpu_target()).has_value());
  CHECK(contains(message_of(check_precision(DType::kF16, jit::host_cpu_target())),
                 "cannot compute in fp16, allowed: fp32, bf16"));
  CHECK(check_precision(DType::kBF16, jit::host_cpu_target()).has_value());
  const jit::Target turing{jit::Backend::kCuda, "sm_75"};
  CHECK(check_precision(DType::kF16, turing).has_value());
  CHECK(contains(message_of(check_precision(DType::kBF16, turing)), "allowed: fp32, fp16"));
  CHECK(check_precision(DType::kBF16, kHopper).has_value());
}

}  // namespace laya::model
