// What kernel is wanted: a template, its compile-time parameters, a target.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "jit/target.h"

namespace laya::jit {

/// An integer, or a word: one of the values that the template lists ("bf16", "gelu", "yes").
using ParamValue = std::variant<int64_t, std::string>;

struct Param {
  std::string name;
  ParamValue value;
  bool operator==(const Param&) const = default;
};

/// A value. Parameters are kept sorted by name, so that the order of set() calls does not matter.
/// Keep a spec and use it again on hot paths: looking one up allocates nothing, building one does.
class KernelSpec {
 public:
  KernelSpec(std::string template_name, Target target);

  /// Sets or replaces one parameter.
  KernelSpec& set(std::string_view name, int64_t value);
  KernelSpec& set(std::string_view name, std::string_view word);

  const std::string& template_name() const { return template_name_; }
  const Target& target() const { return target_; }
  const std::vector<Param>& params() const { return params_; }
  uint64_t hash() const { return hash_; }

  /// "gemm{ACT=gelu,K=768,N=2304,T=bf16}@sm_90a"
  std::string to_string() const;

  bool operator==(const KernelSpec& other) const;

 private:
  friend Result<KernelSpec> parse_kernel_spec(std::string_view text);
  KernelSpec& set_value(std::string_view name, ParamValue value);
  void update_hash();

  std::string template_name_;
  Target target_;
  std::vector<Param> params_;
  uint64_t hash_ = 0;  ///< over all of the above; kept up to date by set()
};

/// The inverse of KernelSpec::to_string(). kBadInput says where the text stops making sense.
Result<KernelSpec> parse_kernel_spec(std::string_view text);

}  // namespace laya::jit
