// What the tile choices of both backends share: reading the parameters of a spec.
#include "model/tiles.h"

#include <algorithm>

namespace laya::model {
namespace {

const jit::ParamValue& value_of(const jit::KernelSpec& base, std::string_view name) {
  const auto& params = base.params();
  return std::find_if(params.begin(), params.end(),
                      [&](const jit::Param& param) { return param.name == name; })
      ->value;
}

}  // namespace

int64_t int_param(const jit::KernelSpec& base, std::string_view name) {
  return std::get<int64_t>(value_of(base, name));
}

std::string word_param(const jit::KernelSpec& base, std::string_view name) {
  return std::get<std::string>(value_of(base, name));
}

}  // namespace laya::model
