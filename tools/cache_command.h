// The parts of `laya cache`: which entries are meant, and one function for each action.
// Internal to tools/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "jit/engine.h"
#include "tools/console.h"
#include "tools/targets.h"

namespace laya::tools {

/// Everything that can be said after `laya cache ACTION`.
struct CacheArgs {
  std::string key;   ///< show: the first digits
  std::string spec;  ///< explain
  std::string file;  ///< export, import

  // Which entries; an empty list means all.
  std::vector<std::string> targets, templates, compilers;
  ModelChoice choice;
  std::vector<std::string> dtypes;

  std::string sort = "used";
  int64_t limit = 0;  ///< list: 0 is all
  std::string to;     ///< prune: a size
  bool other_compilers = false;
  bool repair = false;
  bool disassemble = false;
  bool dry_run = false;
  bool json = false;
};

/// The entries that the options of `args` select, most recently used first.
Result<std::vector<cache::EntryInfo>> select_entries(jit::Engine& engine, const CacheArgs& args);

/// Whether any option of `args` selects some entries.
bool selects(const CacheArgs& args);

/// The engine's metadata; an empty object where another program wrote something else.
Json metadata_of(const cache::EntryInfo& entry);

// The actions; each returns an exit status.
Result<int> list_entries(jit::Engine& engine, const CacheArgs& args);
Result<int> show_entry(jit::Engine& engine, const CacheArgs& args);
Result<int> explain_spec(jit::Engine& engine, const CacheArgs& args);
Result<int> export_bundle(jit::Engine& engine, const CacheArgs& args);
Result<int> import_bundle(jit::Engine& engine, const CacheArgs& args);

}  // namespace laya::tools
