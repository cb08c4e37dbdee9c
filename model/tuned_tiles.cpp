#include "model/tuned_tiles.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

namespace laya::model {
namespace {

using Json = nlohmann::json;

/// Raised when the meaning of a field changes, or when the kernels have changed so much that other
/// tiles may be the fastest.
constexpr int64_t kVersion = 5;
constexpr const char* kProducer = "laya bench kernels --tune";

cache::Key key_of(const jit::KernelSpec& base) {
  cache::KeyBuilder key;
  key.field("laya-tuned-tiles", kVersion);
  key.field("target", base.target().name);
  key.field("operation", base.to_string());
  return std::move(key).finish();
}

Json to_json(const TunedTile& tuned) {
  const ProductTile& t = tuned.tile;
  return {{"max_rows", tuned.max_rows}, {"rows", t.rows},           {"columns", t.columns},
          {"cluster", t.cluster},       {"consumers", t.consumers}, {"shared", t.shared},
          {"split", t.split},           {"x_ring", t.x_ring}};
}

/// Nothing where a field is missing or of another kind.
std::optional<TunedTile> from_json(const Json& json) {
  TunedTile tuned{};
  const auto number = [&](const char* name, int64_t& out) {
    const auto at = json.find(name);
    if (at == json.end() || !at->is_number_integer()) return false;
    out = at->get<int64_t>();
    return true;
  };
  const auto flag = [&](const char* name, bool& out) {
    const auto at = json.find(name);
    if (at == json.end() || !at->is_boolean()) return false;
    out = at->get<bool>();
    return true;
  };
  ProductTile& t = tuned.tile;
  if (!json.is_object() || !number("max_rows", tuned.max_rows) || !number("rows", t.rows) ||
      !number("columns", t.columns) || !number("cluster", t.cluster) ||
      !number("consumers", t.consumers) || !number("split", t.split) || !flag("shared", t.shared) ||
      !flag("x_ring", t.x_ring)) {
    return std::nullopt;
  }
  return tuned;
}

/// The matrix products of a plan, which may be const.
template <class AnyPlan>
auto products(AnyPlan& plan) {
  return std::array{&plan.qkv,      &plan.attn_out,    &plan.mlp_in,      &plan.mlp_out,
                    &plan.head_qkv, &plan.head_mlp_in, &plan.head_mlp_out};
}

bool is_complete(const std::vector<TunedTile>& tiles) {
  int64_t last = 0;
  for (const TunedTile& tuned : tiles) {
    if (tuned.max_rows <= last) return false;
    last = tuned.max_rows;
  }
  return last == std::numeric_limits<int64_t>::max();
}

}  // namespace

bool store_tuned_tiles(cache::Store& store, const jit::KernelSpec& base,
                       const std::vector<TunedTile>& tiles, const TuningProvenance& provenance) {
  Json list = Json::array();
  for (const TunedTile& tuned : tiles) list.push_back(to_json(tuned));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const Json metadata = {
      {"kernel", "tiles of " + base.to_string()},
      {"template", base.template_name()},
      {"target", base.target().name},
      {"device", provenance.device},
      {"detail", provenance.detail},
      {"tuned_at", std::chrono::duration_cast<std::chrono::seconds>(now).count()}};
  return store.put(key_of(base), {kProducer, list.dump(), metadata.dump()});
}

std::vector<TunedTile> find_tuned_tiles(cache::Store& store, const jit::KernelSpec& base,
                                        cache::Layers* layers) {
  const cache::Key key = key_of(base);
  std::optional<cache::Record> record = store.find(key, kProducer);
  if (!record && layers != nullptr) record = layers->find(key, kProducer);
  if (!record) return {};
  const Json list = Json::parse(record->artifact, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return {};
  const std::vector<ProductTile> known = ranked_product_tiles(base, 1);
  std::vector<TunedTile> tiles;
  for (const Json& json : list) {
    const std::optional<TunedTile> tuned = from_json(json);
    if (!tuned || std::find(known.begin(), known.end(), tuned->tile) == known.end()) return {};
    tiles.push_back(*tuned);
  }
  return is_complete(tiles) ? tiles : std::vector<TunedTile>();
}

void use_tuned_tiles(Op& op, cache::Store& store, cache::Layers* layers) {
  if (op.variants.empty()) return;
  const std::optional<jit::KernelSpec> base = product_base(op.variants.front().spec);
  if (!base) return;
  const std::vector<TunedTile> tiles = find_tuned_tiles(store, *base, layers);
  if (tiles.empty()) return;
  op.variants.clear();
  for (const TunedTile& tuned : tiles) {
    op.variants.push_back(product_variant(*base, tuned.tile, tuned.max_rows));
  }
}

std::vector<cache::Key> tuned_tiles_keys(const Plan& plan) {
  std::vector<cache::Key> keys;
  for (const MatrixOp* matrix : products(plan)) {
    const std::vector<Variant>& variants = matrix->multiply.variants;
    const auto base = variants.empty() ? std::nullopt : product_base(variants.front().spec);
    if (base) keys.push_back(key_of(*base));
  }
  return keys;
}

Plan with_tuned_tiles(Plan plan, cache::Store& store, cache::Layers* layers) {
  for (MatrixOp* matrix : products(plan)) use_tuned_tiles(matrix->multiply, store, layers);
  return plan;
}

}  // namespace laya::model
