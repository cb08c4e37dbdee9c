// What the tile choices of both backends share: reading and adding parameters of a spec.
#include "model/tiles.h"

#include <algorithm>
#include <utility>

namespace laya::model {
namespace {

const jit::ParamValue& value_of(const jit::KernelSpec& base, std::string_view name) {
  const auto& params = base.params();
  return std::find_if(params.begin(), params.end(),
                      [&](const jit::Param& param) { return param.name == name; })
      ->value;
}

void set_all(jit::KernelSpec& spec, const std::vector<jit::Param>& params) {
  for (const jit::Param& param : params) {
    std::visit([&](const auto& value) { spec.set(param.name, value); }, param.value);
  }
}

}  // namespace

Variant with_tile(const jit::KernelSpec& base, const Tile& tile) {
  const bool has_template = !tile.template_name.empty();
  jit::KernelSpec spec(has_template ? tile.template_name : base.template_name(), base.target());
  set_all(spec, base.params());
  set_all(spec, tile.params);
  return {tile.max_rows, std::move(spec), tile.rule, tile.code};
}

int64_t int_param(const jit::KernelSpec& base, std::string_view name) {
  return std::get<int64_t>(value_of(base, name));
}

std::string word_param(const jit::KernelSpec& base, std::string_view name) {
  return std::get<std::string>(value_of(base, name));
}

}  // namespace laya::model
