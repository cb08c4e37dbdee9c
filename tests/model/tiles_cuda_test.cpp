// The tiles of the CUDA templates: legal for their template, and able to be launched.
#include <doctest/doctest.h>

#include "jit/template_library.h"
#include "model/ops.h"

namespace laya::test {
namespace {

using model::Activation, model::DType, model::Op;

struct Gpu {
  const char* target;
  uint32_t shared_bytes;  ///< that one block may have
};
constexpr Gpu kGpus[] = {{"sm_75", 65536},  {"sm_80", 166912}, {"sm_86", 101376},
                         {"sm_89", 101376}, {"sm_90", 232448}, {"sm_120", 101376}};

std::vector<Op> ops_of(const jit::Target& target, DType dtype, int64_t hidden, int64_t inner) {
  const int64_t heads = hidden / 64;
  std::vector<Op> ops;
  for (const int64_t n : {int64_t{8}, hidden, 3 * hidden, 4 * hidden}) {
    ops.push_back(model::gemm_op(target, dtype, n, hidden, Activation::kGelu));
  }
  ops.push_back(model::gemm_geglu_op(target, dtype, inner, hidden));
  ops.push_back(model::gemm_residual_op(target, dtype, hidden, inner));
  ops.push_back(model::row_scales_op(target, dtype, hidden));
  ops.push_back(model::embed_norm_op(target, DType::kF16, dtype, hidden));
  ops.push_back(model::final_norm_op(target, dtype, hidden));
  ops.push_back(model::rope_op(target, dtype, heads, 64));
  for (const int64_t window : {0, 64}) {
    ops.push_back(model::attention_op(target, dtype, heads, 64, window));
  }
  ops.push_back(model::gather_rows_op(target, dtype, hidden));
  ops.push_back(model::decision_hidden_op(target, dtype, hidden, 256));
  ops.push_back(model::decision_op(target, hidden, 256, 2));
  return ops;
}

template <class Check>
void for_each_op(const Check& check) {
  for (const Gpu& gpu : kGpus) {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      for (const int64_t hidden : {64, 768, 1024, 4160}) {
        for (const Op& op : ops_of({jit::Backend::kCuda, gpu.target}, dtype, hidden, 96)) {
          CAPTURE(op.variants.front().spec.to_string());
          check(gpu, op);
        }
      }
    }
  }
}

TEST_CASE("every CUDA tile is legal for its template") {
  const auto library = jit::TemplateLibrary::create({}, {});
  REQUIRE(library.has_value());
  for_each_op([&](const Gpu&, const Op& op) {
    for (const model::Variant& variant : op.variants) {
      const auto source = library->find(variant.spec.template_name(), jit::Backend::kCuda);
      REQUIRE(source.has_value());
      const auto text = expand(**source, variant.spec);
      CHECK_MESSAGE(text.has_value(), text.error().to_string());
    }
  });
}

TEST_CASE("every CUDA tile fits a block of its GPU") {
  for_each_op([](const Gpu& gpu, const Op& op) {
    for (const model::Variant& variant : op.variants) {
      const model::LaunchRule& rule = variant.rule;
      // Products but those of Hopper have a scale for each row of a tile in static memory.
      const bool has_scales = variant.spec.template_name().starts_with("gemm") &&
                              !variant.spec.template_name().ends_with("_sm90");
      const int64_t scales = has_scales ? 4 * rule.rows_per_block : 0;
      CHECK(rule.dynamic_shared_bytes + scales <= gpu.shared_bytes);
      CHECK(rule.threads % 32 == 0);
      CHECK(rule.threads <= 1024);
    }
  });
}

TEST_CASE("variants ascend, and the last one takes any number of rows") {
  for_each_op([](const Gpu&, const Op& op) {
    for (size_t i = 1; i < op.variants.size(); ++i) {
      CHECK(op.variants[i - 1].max_rows < op.variants[i].max_rows);
    }
    CHECK(op.variants.back().max_rows == INT64_MAX);
  });
}

TEST_CASE("few rows of a product get small tiles, so that more multiprocessors work") {
  const jit::Target target{jit::Backend::kCuda, "sm_80"};
  const Op op = model::gemm_op(target, DType::kF16, 768, 768, Activation::kNone);
  const auto blocks = [&](int64_t rows) { return op.choose(rows).rule.shape(rows).grid.x; };
  CHECK(blocks(64) >= 48);
  CHECK(blocks(1024) >= 128);
  CHECK(op.choose(32768).rule.rows_per_block == 128);
  CHECK(blocks(0) == 0);
}

}  // namespace
}  // namespace laya::test
