#include "jit/cuda/source_check.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace laya::jit::cuda {
namespace {

constexpr size_t kMaxBytes = size_t{4} << 20;
constexpr int kMaxDepth = 1000;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/// Walks over a text as the preprocessor sees it: a backslash at the end of a line joins lines.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) { join_lines(); }

  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  int line() const { return line_; }

  char next() {
    if (at_end()) return '\0';
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    join_lines();
    return c;
  }

  void skip_blanks() {
    while (is_blank(peek())) next();
  }

  /// Reads up to `end` or the end of the line; the text before it.
  std::string read_until(char end) {
    std::string text;
    while (!at_end() && peek() != end && peek() != '\n') text += next();
    return text;
  }

  /// Moves behind the next `end`.
  void skip_behind(std::string_view end) {
    std::string tail;
    while (!at_end() && !tail.ends_with(end)) {
      tail += next();
      if (tail.size() > end.size()) tail.erase(0, 1);
    }
  }

 private:
  void join_lines() {
    for (;;) {
      const std::string_view rest = text_.substr(at_);
      const size_t length = rest.starts_with("\\\n") ? 2 : rest.starts_with("\\\r\n") ? 3 : 0;
      if (length == 0) return;
      at_ += length;
      ++line_;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

/// Checks one file. Knows just enough of C++ not to count what is in comments and literals.
class Scanner {
 public:
  Scanner(std::string_view file, std::string_view text, const std::vector<Header>& headers)
      : file_(file), cursor_(text), headers_(headers) {}

  Result<void> run() {
    while (!cursor_.at_end()) LAYA_TRY(step(cursor_.next()));
    return {};
  }

 private:
  tl::unexpected<Error> refuse(const std::string& what) const {
    return fail(ErrorKind::kCompileFailed,
                file_ + ":" + std::to_string(cursor_.line()) + ": " + what);
  }

  Result<void> step(char c) {
    const bool begins_line = std::exchange(begins_line_, false);
    if (is_word(c)) {
      word_ += c;
      return {};
    }
    // 1'000: the quote belongs to the number.
    if (c == '\'' && !word_.empty() && word_[0] >= '0' && word_[0] <= '9') return {};
    const std::string word = std::exchange(word_, {});
    if (c == '\n' || is_blank(c)) {
      begins_line_ = begins_line || c == '\n';
    } else if (c == '/' && (cursor_.peek() == '/' || cursor_.peek() == '*')) {
      skip_comment();
      begins_line_ = begins_line;
    } else if (c == '"' || c == '\'') {
      skip_literal(c, word);
    } else if (begins_line && (c == '#' || (c == '%' && cursor_.peek() == ':'))) {
      if (c == '%') cursor_.next();
      return directive();
    } else {
      return bracket(c);
    }
    return {};
  }

  Result<void> bracket(char c) {
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if (c == ')' || c == ']' || c == '}') depth_ = std::max(depth_ - 1, 0);
    if (depth_ <= kMaxDepth) return {};
    return refuse("brackets are nested more than " + std::to_string(kMaxDepth) + " deep");
  }

  void skip_comment() {
    if (cursor_.next() == '*') {
      cursor_.skip_behind("*/");
    } else {
      cursor_.read_until('\n');
    }
  }

  void skip_literal(char quote, const std::string& prefix) {
    if (quote == '"' && prefix.ends_with('R')) {
      cursor_.skip_behind(")" + cursor_.read_until('(') + "\"");
      return;
    }
    while (!cursor_.at_end() && cursor_.peek() != '\n') {
      const char c = cursor_.next();
      if (c == quote) return;
      if (c == '\\') cursor_.next();
    }
  }

  Result<void> directive() {
    cursor_.skip_blanks();
    std::string name;
    while (is_word(cursor_.peek())) name += cursor_.next();
    if (!name.starts_with("include") && name != "import") return {};
    cursor_.skip_blanks();
    const char open = cursor_.peek();
    if (open != '"' && open != '<') return refuse("#" + name + " must name a header directly");
    cursor_.next();
    return include(cursor_.read_until(open == '<' ? '>' : '"'));
  }

  /// NVRTC would read such a file from the disk and show pieces of it in its messages.
  Result<void> include(const std::string& header) {
    const bool leaves = header.starts_with('/') || ("/" + header).find("/..") != std::string::npos;
    const bool is_given = std::any_of(headers_.begin(), headers_.end(),
                                      [&](const Header& given) { return given.name == header; });
    if (!leaves || is_given) return {};
    return refuse("#include of '" + header + "': only the headers given can be included");
  }

  std::string file_;
  Cursor cursor_;
  const std::vector<Header>& headers_;
  std::string word_;         // the identifier or number just read
  bool begins_line_ = true;  // only blanks and comments so far on this line
  int depth_ = 0;
};

Result<void> check_bytes(const std::string& file, const std::string& text) {
  const size_t at = text.find_first_of(std::string_view("\0\xff", 2));
  if (at == std::string::npos) return {};
  const auto line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n') + 1;
  return fail(ErrorKind::kCompileFailed, file + ":" + std::to_string(line) + ": a byte of value " +
                                             (text[at] == '\0' ? "0" : "255") + " in the source");
}

Result<void> check_file(const std::string& file, const std::string& text,
                        const std::vector<Header>& headers) {
  LAYA_TRY(check_bytes(file, text));
  return Scanner(file, text, headers).run();
}

}  // namespace

Result<void> check_source(const CompileRequest& request) {
  size_t bytes = request.source.size();
  for (const Header& header : request.headers) bytes += header.text.size();
  if (bytes > kMaxBytes) {
    return fail(ErrorKind::kCompileFailed, request.name + " and its headers have " +
                                               std::to_string(bytes) + " bytes, the limit is " +
                                               std::to_string(kMaxBytes));
  }
  LAYA_TRY(check_file(request.name, request.source, request.headers));
  for (const Header& header : request.headers) {
    LAYA_TRY(check_file(header.name, header.text, request.headers));
  }
  return {};
}

}  // namespace laya::jit::cuda
