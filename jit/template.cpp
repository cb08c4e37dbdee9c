// Reads the declaration of a template. What becomes of it: template_expand.cpp.
#include "jit/template.h"

#include <algorithm>

#include "jit/template_text.h"

namespace laya::jit {
namespace {

struct KindName {
  ArgKind kind;
  const char* name;
  int bytes;
};
constexpr KindName kKinds[] = {
    {ArgKind::kPointer, "ptr", 8}, {ArgKind::kI32, "i32", 4},       {ArgKind::kU32, "u32", 4},
    {ArgKind::kI64, "i64", 8},     {ArgKind::kU64, "u64", 8},       {ArgKind::kF32, "f32", 4},
    {ArgKind::kF64, "f64", 8},     {ArgKind::kTensorMap, "map", 8},
};

constexpr int kMapFields = 5;

const KindName& row_of(ArgKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

bool is_identifier(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || digit(c); });
}

/// True if `code` holds `name` as a whole word, or as the beginning of one such as T_BYTES.
bool mentions(std::string_view code, std::string_view name) {
  const auto is_word = [](char c) { return is_identifier({&c, 1}) || (c >= '0' && c <= '9'); };
  for (size_t at = code.find(name); at != std::string_view::npos; at = code.find(name, at + 1)) {
    const size_t end = at + name.size();
    const bool begins = at == 0 || !is_word(code[at - 1]);
    if (begins && (end == code.size() || !is_word(code[end]) || code[end] == '_')) return true;
  }
  return false;
}

/// Cuts space-separated items off the front of a line.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}

  std::string_view next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    const std::string_view item = rest_.substr(0, std::min(rest_.find(' '), rest_.size()));
    rest_.remove_prefix(item.size());
    return item;
  }
  /// True if the next item is one single space away.
  bool continues() const { return rest_.size() >= 2 && rest_[0] == ' ' && rest_[1] != ' '; }

 private:
  std::string_view rest_;
};

class DeclarationParser {
 public:
  explicit DeclarationParser(Template& result) : result_(result) {}

  Result<void> line(std::string_view text, int number) {
    number_ = number;
    LineReader reader(text);
    const std::string_view kind = reader.next();
    if (kind.empty()) return {};
    if (kind == "entry") return entry(reader);
    if (kind == "param") return param(reader);
    if (kind == "arg") return arg(reader);
    if (kind == "launch") return launch(reader);
    return bad("'" + std::string(kind) + "' is none of entry, param, arg, launch");
  }

  /// `code`: the text without its declaration lines.
  Result<void> finish(std::string_view code) {
    const auto bad_template = [&](const std::string& what) {
      return fail(ErrorKind::kBadSpec, "template '" + result_.name + "' " + what);
    };
    if (result_.entry.empty()) return bad_template("has no '//! entry' line");
    for (const ParamDecl& decl : result_.params) {
      if (!mentions(code, decl.name)) {
        return bad_template("declares parameter " + decl.name + " and never uses it");
      }
    }
    if (!result_.cluster.empty() && !mentions(code, "LAYA_CLUSTER")) {
      return bad_template("asks for clusters and never uses LAYA_CLUSTER");
    }
    return {};
  }

 private:
  Result<void> entry(LineReader& reader) {
    if (!result_.entry.empty()) return bad("a second entry");
    result_.entry = reader.next();
    if (!is_identifier(result_.entry)) return bad("the entry's name is no identifier");
    return {};
  }

  Result<void> param(LineReader& reader) {
    ParamDecl decl;
    decl.name = reader.next();
    if (!is_identifier(decl.name)) return bad("the parameter's name is no identifier");
    for (const ParamDecl& other : result_.params) {
      if (other.name == decl.name) return bad("parameter '" + decl.name + "' is declared twice");
    }
    const std::string_view type = reader.next();
    if (type == "int") {
      LAYA_TRY(int_range(reader, decl));
    } else if (type == "word") {
      LAYA_TRY(words(reader, decl));
    } else {
      return bad("the type of parameter '" + decl.name + "' is neither int nor word");
    }
    result_.params.push_back(std::move(decl));
    return {};
  }

  Result<void> int_range(LineReader& reader, ParamDecl& decl) {
    decl.is_int = true;
    const std::string_view range = reader.next();
    const size_t dots = range.find("..");
    if (dots == std::string_view::npos) return bad("an int needs a range such as 8..4096");
    const auto min = parse_int(range.substr(0, dots)), max = parse_int(range.substr(dots + 2));
    if (!min || !max || *min > *max) return bad("'" + std::string(range) + "' is no range");
    decl.min = *min;
    decl.max = *max;
    if (LineReader ahead = reader; ahead.next() == "step") {
      const auto step = parse_int(ahead.next());
      if (!step || *step < 1) return bad("step needs a number of at least 1");
      decl.step = *step;
    }
    return {};
  }

  Result<void> words(LineReader& reader, ParamDecl& decl) {
    do {
      const std::string_view word = reader.next();
      if (!is_identifier(word)) return bad("'" + std::string(word) + "' is no identifier");
      decl.words.emplace_back(word);
    } while (reader.continues());
    return {};
  }

  Result<void> arg(LineReader& reader) {
    ArgTemplate decl;
    decl.name = reader.next();
    if (!is_identifier(decl.name)) return bad("the argument's name is no identifier");
    const std::string_view kind = reader.next();
    const auto* row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const KindName& k) { return kind == k.name; });
    if (row == std::end(kKinds)) {
      return bad("argument '" + decl.name + "' has kind '" + std::string(kind) +
                 "', which is none of ptr, i32, u32, i64, u64, f32, f64, map");
    }
    decl.kind = row->kind;
    if (decl.kind == ArgKind::kTensorMap) {
      if (result_.backend != Backend::kCuda) return bad("only CUDA kernels have map arguments");
      for (int i = 0; i < kMapFields; ++i) decl.map_fields.emplace_back(reader.next());
      if (decl.map_fields.back().empty()) {
        return bad("a map needs a dtype, rows, columns, box rows and box columns");
      }
      if (reader.continues()) {
        const bool is_by_thread = reader.next() == "by_thread" && reader.continues();
        if (!is_by_thread) return bad("behind its sizes a map can have 'by_thread ROWS' only");
        decl.map_fields.emplace_back(reader.next());
      }
    }
    result_.args.push_back(std::move(decl));
    return {};
  }

  Result<void> launch(LineReader& reader) {
    const std::string_view kind = reader.next();
    const std::string_view blocks = kind == "cluster" ? reader.next() : std::string_view();
    if ((kind != "dependent" && blocks.empty()) || result_.backend != Backend::kCuda) {
      return bad("a launch can only be 'dependent' or 'cluster BLOCKS', and that of a CUDA kernel");
    }
    if (kind == "dependent") {
      result_.is_dependent = true;
      return {};
    }
    if (!result_.cluster.empty()) return bad("a second cluster");
    result_.cluster = blocks;
    return {};
  }

  tl::unexpected<Error> bad(std::string what) const {
    return fail(ErrorKind::kBadSpec, "template '" + result_.name + "', line " +
                                         std::to_string(number_) + ": " + std::move(what));
  }

  Template& result_;
  int number_ = 0;
};

}  // namespace

int size_of(ArgKind kind) {
  return row_of(kind).bytes;
}
const char* to_string(ArgKind kind) {
  return row_of(kind).name;
}

bool ParamDecl::is_dtype() const {
  return !is_int && std::all_of(words.begin(), words.end(), is_dtype_word);
}

Result<Template> parse_template(std::string name, Backend backend, std::string text) {
  Template result{std::move(name), backend, {}, {}, {}, false, {}, std::move(text)};
  DeclarationParser parser(result);
  std::string_view rest = result.text;
  std::string code;
  for (int number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size()));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("//!")) {
      LAYA_TRY(parser.line(line.substr(3), number));
    } else {
      code.append(line).push_back('\n');
    }
  }
  LAYA_TRY(parser.finish(code));
  return result;
}

}  // namespace laya::jit
