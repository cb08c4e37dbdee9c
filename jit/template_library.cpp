#include "jit/template_library.h"

#include <fstream>
#include <optional>
#include <set>
#include <sstream>

namespace laya::jit {

// The table that cmake/EmbedTemplates.cmake writes.
struct EmbeddedTemplate {
  std::string_view path;
  std::string_view text;
};
extern const EmbeddedTemplate kEmbeddedTemplates[];
extern const int kEmbeddedTemplateCount;

namespace {

namespace fs = std::filesystem;

std::optional<std::string> read_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) return std::nullopt;
  return std::move(text).str();
}

/// The name in `#include "name"` or `#include <name>`; empty for any other line.
std::string_view included_name(std::string_view line) {
  const auto skip_blanks = [&] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_blanks();
  if (!line.starts_with('#')) return {};
  line.remove_prefix(1);
  skip_blanks();
  if (!line.starts_with("include")) return {};
  line.remove_prefix(7);
  skip_blanks();
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return {};
  const size_t end = line.find(line[0] == '"' ? '"' : '>', 1);
  return end == std::string_view::npos ? std::string_view{} : line.substr(1, end - 1);
}

template <class Visit>
void for_each_include(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size()));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (const std::string_view name = included_name(line); !name.empty()) visit(name);
  }
}

}  // namespace

Result<TemplateLibrary> TemplateLibrary::create(const fs::path& template_dir,
                                                std::vector<fs::path> include_dirs) {
  TemplateLibrary library;
  library.include_dirs_ = std::move(include_dirs);
  if (template_dir.empty()) {
    for (int i = 0; i < kEmbeddedTemplateCount; ++i) {
      const EmbeddedTemplate& file = kEmbeddedTemplates[i];
      LAYA_TRY(library.add_file(file.path, std::string(file.text)));
    }
    return library;
  }
  for (const char* folder : {"cuda", "cpu"}) {
    std::error_code error;
    for (fs::directory_iterator entry(template_dir / folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string path = folder + ("/" + entry->path().filename().string());
      if (auto text = read_file(entry->path())) LAYA_TRY(library.add_file(path, std::move(*text)));
    }
    if (error) {
      return fail(ErrorKind::kBadInput, "template directory " + (template_dir / folder).string() +
                                            ": " + error.message() + " (LAYA_TEMPLATE_DIR)");
    }
  }
  return library;
}

Result<void> TemplateLibrary::add_file(std::string_view path, std::string text) {
  const fs::path file(path);
  const Backend backend = path.starts_with("cuda/") ? Backend::kCuda : Backend::kCpu;
  const std::string extension = file.extension().string();
  if (extension == ".cu" || extension == ".cpp") {
    return add_template(file.stem().string(), backend, std::move(text));
  }
  add_header(file.filename().string(), backend, std::move(text));
  return {};
}

Result<void> TemplateLibrary::add_template(std::string name, Backend backend, std::string text) {
  Id id(backend, name);
  LAYA_ASSIGN(Template parsed, parse_template(std::move(name), backend, std::move(text)));
  templates_[std::move(id)] = std::make_shared<const Template>(std::move(parsed));
  return {};
}

void TemplateLibrary::add_header(std::string name, Backend backend, std::string text) {
  headers_[Id(backend, std::move(name))] = std::move(text);
}

Result<std::shared_ptr<const Template>> TemplateLibrary::find(std::string_view name,
                                                              Backend backend) const {
  const auto at = templates_.find(Id(backend, name));
  if (at != templates_.end()) return at->second;
  std::string known;
  for (const auto& [id, unused] : templates_) {
    if (id.first == backend) known += (known.empty() ? "" : ", ") + id.second;
  }
  return fail(ErrorKind::kBadSpec, std::string("no ") + to_string(backend) + " template '" +
                                       std::string(name) + "'; there are: " + known);
}

const std::string* TemplateLibrary::find_header(const std::string& name, Backend backend,
                                                std::string& storage) const {
  if (const auto at = headers_.find(Id(backend, name)); at != headers_.end()) return &at->second;
  for (const fs::path& dir : include_dirs_) {
    if (auto text = read_file(dir / name)) {
      storage = std::move(*text);
      return &storage;
    }
  }
  return nullptr;
}

std::vector<Header> TemplateLibrary::reachable_headers(std::string_view source,
                                                       Backend backend) const {
  std::map<std::string, std::string> found;
  std::set<std::string> seen;
  std::vector<std::string> pending;
  const auto note = [&](std::string_view name) {
    if (seen.emplace(name).second) pending.emplace_back(name);
  };
  for_each_include(source, note);
  while (!pending.empty()) {
    const std::string name = std::move(pending.back());
    pending.pop_back();
    std::string storage;
    const std::string* text = find_header(name, backend, storage);
    if (text == nullptr) continue;
    for_each_include(*text, note);
    found.emplace(name, *text);
  }
  std::vector<Header> headers;
  for (auto& [name, text] : found) headers.push_back({name, std::move(text)});
  return headers;
}

}  // namespace laya::jit
