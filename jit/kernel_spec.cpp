#include "jit/kernel_spec.h"

#include <algorithm>
#include <charconv>
#include <functional>

namespace laya::jit {
namespace {

uint64_t mix(uint64_t seed, uint64_t value) {
  // The finaliser of SplitMix64: enough to spread the few bits in which specs differ.
  uint64_t z = seed ^ (value + 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint64_t hash_text(std::string_view text) {
  return std::hash<std::string_view>{}(text);
}

uint64_t hash_value(const ParamValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<uint64_t>(*number);
  return hash_text(std::get<std::string>(value));
}

std::string value_text(const ParamValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  return std::get<std::string>(value);
}

ParamValue parse_value(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return std::string(text);
}

}  // namespace

KernelSpec::KernelSpec(std::string template_name, Target target)
    : template_name_(std::move(template_name)), target_(std::move(target)) {
  update_hash();
}

KernelSpec& KernelSpec::set(std::string_view name, int64_t value) {
  return set_value(name, value);
}

KernelSpec& KernelSpec::set(std::string_view name, std::string_view word) {
  return set_value(name, std::string(word));
}

KernelSpec& KernelSpec::set_value(std::string_view name, ParamValue value) {
  const auto at = std::lower_bound(params_.begin(), params_.end(), name,
                                   [](const Param& p, std::string_view n) { return p.name < n; });
  if (at != params_.end() && at->name == name) {
    at->value = std::move(value);
  } else {
    params_.insert(at, Param{std::string(name), std::move(value)});
  }
  update_hash();
  return *this;
}

void KernelSpec::update_hash() {
  uint64_t hash = mix(hash_text(template_name_), hash_text(target_.name));
  hash = mix(hash, static_cast<uint64_t>(target_.backend));
  for (const Param& param : params_) {
    hash = mix(mix(hash, hash_text(param.name)), hash_value(param.value));
  }
  hash_ = hash;
}

std::string KernelSpec::to_string() const {
  std::string text = template_name_ + "{";
  for (const Param& param : params_) {
    if (&param != &params_.front()) text += ',';
    text += param.name + "=" + value_text(param.value);
  }
  return text + "}@" + target_.name;
}

bool KernelSpec::operator==(const KernelSpec& other) const {
  return hash_ == other.hash_ && template_name_ == other.template_name_ &&
         target_ == other.target_ && params_ == other.params_;
}

Result<KernelSpec> parse_kernel_spec(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return fail(ErrorKind::kBadInput, "kernel spec '" + std::string(text) + "' " +
                                          std::string(why) +
                                          "; the form is name{PARAM=value,...}@target");
  };
  const size_t open = text.find('{'), close = text.find("}@");
  if (open == 0 || open == std::string_view::npos) return bad("has no name before '{'");
  if (close == std::string_view::npos || close < open) return bad("has no '}@target'");
  LAYA_ASSIGN(Target target, parse_target(text.substr(close + 2)));
  KernelSpec spec(std::string(text.substr(0, open)), std::move(target));

  std::string_view rest = text.substr(open + 1, close - open - 1);
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t equals = item.find('=');
    if (equals == 0 || equals == std::string_view::npos || equals + 1 == item.size()) {
      return bad("has '" + std::string(item) + "' where PARAM=value belongs");
    }
    spec.set_value(item.substr(0, equals), parse_value(item.substr(equals + 1)));
  }
  return spec;
}

}  // namespace laya::jit
