// All templates and headers that an engine knows: the built-in ones (or those of a directory) and
// what the application adds.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/result.h"
#include "jit/compiler.h"
#include "jit/template.h"

namespace laya::jit {

/// Not thread-safe for add_*(); the const functions may run on many threads at once.
class TemplateLibrary {
 public:
  /// With an empty `template_dir` the built-in templates, else those in `template_dir`/cuda and
  /// `template_dir`/cpu, all read now. `include_dirs` are searched for headers that are not
  /// registered. kBadInput: the directory cannot be read; kBadSpec: a declaration is wrong.
  static Result<TemplateLibrary> create(const std::filesystem::path& template_dir,
                                        std::vector<std::filesystem::path> include_dirs);

  Result<void> add_template(std::string name, Backend backend, std::string text);
  void add_header(std::string name, Backend backend, std::string text);

  /// kBadSpec lists the templates there are.
  Result<std::shared_ptr<const Template>> find(std::string_view name, Backend backend) const;

  /// Every header that `source` can reach through #include, sorted by name. Conditional includes
  /// count too. One that cannot be found is left out: if it is really needed, the compiler says so.
  std::vector<Header> reachable_headers(std::string_view source, Backend backend) const;

 private:
  using Id = std::pair<Backend, std::string>;

  Result<void> add_file(std::string_view path, std::string text);
  const std::string* find_header(const std::string& name, Backend backend,
                                 std::string& storage) const;

  std::map<Id, std::shared_ptr<const Template>> templates_;
  std::map<Id, std::string> headers_;
  std::vector<std::filesystem::path> include_dirs_;
};

}  // namespace laya::jit
