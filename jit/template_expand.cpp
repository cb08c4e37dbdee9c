// From a template and a spec to the source that is compiled and the arguments it takes.
#include <algorithm>
#include <limits>

#include "jit/template.h"
#include "jit/template_text.h"

namespace laya::jit {
namespace {

std::string allowed(const ParamDecl& decl) {
  if (decl.is_int) {
    std::string text = std::to_string(decl.min) + ".." + std::to_string(decl.max);
    if (decl.step != 1) text += " in steps of " + std::to_string(decl.step);
    return text;
  }
  std::string text;
  for (const std::string& word : decl.words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

bool accepts(const ParamDecl& decl, const ParamValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return decl.is_int && *number >= decl.min && *number <= decl.max && *number % decl.step == 0;
  }
  const std::string& word = std::get<std::string>(value);
  return !decl.is_int && std::find(decl.words.begin(), decl.words.end(), word) != decl.words.end();
}

Result<void> check_params(const Template& source, const KernelSpec& spec) {
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::kBadSpec, spec.to_string() + ": " + what);
  };
  const auto& given = spec.params();
  for (const ParamDecl& decl : source.params) {
    const auto at = std::find_if(given.begin(), given.end(),
                                 [&](const Param& p) { return p.name == decl.name; });
    if (at == given.end()) {
      return bad("parameter " + decl.name + " is missing; allowed: " + allowed(decl));
    }
    if (!accepts(decl, at->value)) {
      return bad("parameter " + decl.name + " has no legal value; allowed: " + allowed(decl));
    }
  }
  for (const Param& param : given) {
    const bool known = std::any_of(source.params.begin(), source.params.end(),
                                   [&](const ParamDecl& d) { return d.name == param.name; });
    if (!known) return bad("template '" + source.name + "' has no parameter " + param.name);
  }
  return {};
}

/// Turns fields of a declaration into numbers, with the parameters of one spec. `owner`: what they
/// are fields of, for messages.
class FieldResolver {
 public:
  FieldResolver(const Template& source, const KernelSpec& spec, std::string owner)
      : source_(source), spec_(spec), owner_(std::move(owner)) {}

  Result<TensorMapShape> map(const ArgTemplate& arg) const {
    TensorMapShape shape;
    LAYA_ASSIGN(shape.dtype, dtype(arg.map_fields[0]));
    shape.rows_arg = argument(arg.map_fields[1]);
    if (shape.rows_arg < 0) {
      LAYA_ASSIGN(shape.rows, product(arg.map_fields[1]));
    }
    LAYA_ASSIGN(shape.columns, product(arg.map_fields[2]));
    LAYA_ASSIGN(shape.box_rows, product(arg.map_fields[3]));
    LAYA_ASSIGN(shape.box_columns, product(arg.map_fields[4]));
    if (arg.map_fields.size() <= 5) return shape;
    const std::string& group = arg.map_fields[5];
    LAYA_ASSIGN(shape.by_thread, product(group));
    if (shape.by_thread < 8 || shape.by_thread % 8 != 0) return bad(group, "is no multiple of 8");
    if (shape.rows_arg >= 0) return bad(group, "needs a number of rows, not an argument");
    if (shape.rows % shape.by_thread != 0 || shape.box_rows % shape.by_thread != 0) {
      return bad(group, "does not divide the rows of the matrix and of a box");
    }
    return shape;
  }

  /// Of int parameters and numbers, such as 2*N.
  Result<int64_t> product(const std::string& field) const {
    int64_t result = 1;
    for (size_t begin = 0; begin <= field.size();) {
      const size_t end = std::min(field.find('*', begin), field.size());
      const std::string_view factor = std::string_view(field).substr(begin, end - begin);
      const ParamValue* value = value_of(factor);
      const auto number = value != nullptr && std::holds_alternative<int64_t>(*value)
                              ? std::optional(std::get<int64_t>(*value))
                              : parse_int(factor);
      if (!number || __builtin_mul_overflow(result, *number, &result)) {
        return bad(field, "is no product of int parameters and numbers");
      }
      begin = end + 1;
    }
    return result;
  }

 private:
  const ParamValue* value_of(std::string_view name) const {
    for (const Param& param : spec_.params()) {
      if (param.name == name) return &param.value;
    }
    return nullptr;
  }

  Result<std::string> dtype(const std::string& field) const {
    for (const ParamDecl& decl : source_.params) {
      if (decl.name == field && decl.is_dtype()) return std::get<std::string>(*value_of(field));
    }
    if (is_dtype_word(field)) return field;
    return bad(field, "is no dtype");
  }

  int argument(std::string_view field) const {
    for (size_t i = 0; i < source_.args.size(); ++i) {
      const ArgTemplate& arg = source_.args[i];
      if (arg.name == field && arg.kind == ArgKind::kI32) return static_cast<int>(i);
    }
    return -1;
  }

  tl::unexpected<Error> bad(const std::string& field, const char* why) const {
    return fail(ErrorKind::kBadSpec,
                "template '" + source_.name + "': '" + field + "' of " + owner_ + " " + why);
  }

  const Template& source_;
  const KernelSpec& spec_;
  std::string owner_;
};

/// The macro that a template puts in front of its entry.
Result<std::string> cluster_macro(const Template& source, const KernelSpec& spec) {
  const FieldResolver resolver(source, spec, "'launch cluster'");
  LAYA_ASSIGN(const int64_t blocks, resolver.product(source.cluster));
  if (blocks < 1) {
    return fail(ErrorKind::kBadSpec, spec.to_string() + ": a cluster of " + std::to_string(blocks) +
                                         " blocks; at least 1 is needed");
  }
  const std::string dims = " __cluster_dims__(" + std::to_string(blocks) + ", 1, 1)";
  return "#define LAYA_CLUSTER" + (blocks > 1 ? dims : "") + "\n";
}

/// For GPUs an enumerator: NVRTC makes an object in the GPU's memory of every constexpr variable,
/// and the driver takes 3 us for each when it loads the kernel.
void append_constant(std::string& out, Backend backend, const std::string& type,
                     const std::string& definition) {
  out += backend == Backend::kCuda ? "enum : " + type + " { " + definition + " };\n"
                                   : "constexpr " + type + " " + definition + ";\n";
}

void append_int(std::string& out, Backend backend, const std::string& name, int64_t value) {
  const bool fits =
      value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max();
  append_constant(out, backend, fits ? "int" : "long long",
                  name + " = " + std::to_string(value) + (fits ? "" : "LL"));
}

void append_param(std::string& out, Backend backend, const ParamDecl& decl,
                  const ParamValue& value) {
  if (decl.is_int) return append_int(out, backend, decl.name, std::get<int64_t>(value));
  const std::string& word = std::get<std::string>(value);
  if (decl.is_dtype()) {
    out += "using " + decl.name + " = " + word + ";\n";
    return append_int(out, backend, decl.name + "_BYTES", word == "fp32" ? 4 : 2);
  }
  for (size_t i = 0; i < decl.words.size(); ++i) {
    append_int(out, backend, decl.name + "_" + decl.words[i], static_cast<int64_t>(i));
  }
  append_constant(out, backend, "int", decl.name + " = " + decl.name + "_" + word);
}

/// The function that every CPU kernel is called through, whatever its arguments.
std::string cpu_launcher(const Template& source) {
  static constexpr const char* kTypes[] = {"LayaAnyPointer",     "int",   "unsigned", "long long",
                                           "unsigned long long", "float", "double"};
  std::string out =
      "\n#line 1 \"launch\"\nnamespace {\nstruct LayaAnyPointer {\n  void* value;\n"
      "  template <class U>\n  operator U*() const { return static_cast<U*>(value); }\n};\n}\n"
      "extern \"C\" void laya_launch(void* const* args, const Block* block) {\n  " +
      source.entry + "(";
  for (size_t i = 0; i < source.args.size(); ++i) {
    out += std::string("*static_cast<const ") + kTypes[static_cast<size_t>(source.args[i].kind)] +
           "*>(args[" + std::to_string(i) + "]), ";
  }
  return out + "*block);\n}\n";
}

}  // namespace

Result<Signature> resolve_signature(const Template& source, const KernelSpec& spec) {
  LAYA_TRY(check_params(source, spec));
  Signature signature;
  for (const ArgTemplate& arg : source.args) {
    ArgDecl decl{arg.name, arg.kind, {}};
    if (arg.kind == ArgKind::kTensorMap) {
      LAYA_ASSIGN(decl.map, FieldResolver(source, spec, "argument '" + arg.name + "'").map(arg));
    }
    signature.push_back(std::move(decl));
  }
  return signature;
}

Result<Source> expand(const Template& source, const KernelSpec& spec) {
  LAYA_TRY(check_params(source, spec));
  const bool is_cpu = source.backend == Backend::kCpu;
  const bool has_dtype = std::any_of(source.params.begin(), source.params.end(),
                                     [](const ParamDecl& d) { return d.is_dtype(); });
  std::string out;
  if (is_cpu) {
    out += "#include \"types.h\"\n";
  } else if (has_dtype) {
    out += "#include \"types.cuh\"\n";
  }
  for (const ParamDecl& decl : source.params) {
    const auto at = std::find_if(spec.params().begin(), spec.params().end(),
                                 [&](const Param& p) { return p.name == decl.name; });
    append_param(out, source.backend, decl, at->value);
  }
  if (!source.cluster.empty()) {
    LAYA_ASSIGN(const std::string macro, cluster_macro(source, spec));
    out += macro;
  }
  std::string text = "#line 1 \"" + source.name + (is_cpu ? ".cpp\"\n" : ".cu\"\n") + source.text;
  if (is_cpu) text += cpu_launcher(source);
  return Source{std::move(out), std::move(text)};
}

}  // namespace laya::jit
