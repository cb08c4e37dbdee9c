// `laya cache ...`: what the artifact store holds, and what can be done about it.
#include "tools/cache_command.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "cache/layers.h"
#include "tools/command.h"
#include "tools/table.h"

namespace laya::tools {
namespace {

/// A person asks for this directory, so one that cannot be used is an error here.
Result<std::shared_ptr<jit::Engine>> open_engine() {
  LAYA_ASSIGN(jit::Options options, command_options());
  LAYA_ASSIGN(std::shared_ptr<jit::Engine> engine, jit::Engine::create(std::move(options)));
  const cache::Store& store = engine->store();
  if (store.mode() == cache::StoreMode::kMemoryOnly) {
    return fail(ErrorKind::kStoreError, "no cache to look at: " + store.reason());
  }
  return engine;
}

Json to_json(const cache::Layers::Info& layer) {
  Json json = {{"path", layer.path.string()}, {"entries", layer.entries}};
  if (!layer.problem.empty()) json["problem"] = layer.problem;
  return json;
}

Result<int> run_stats(jit::Engine& engine, const CacheArgs& args) {
  cache::Store& store = engine.store();
  LAYA_ASSIGN(const std::vector<cache::EntryInfo> entries, store.list());
  LAYA_ASSIGN(const int64_t bytes, store.stored_bytes());
  int64_t hits = 0;
  for (const cache::EntryInfo& entry : entries) hits += entry.hits;
  const auto layers = engine.layers().describe();
  const cache::StoreOptions& options = store.options();
  if (args.json) {
    Json json = {{"dir", options.directory.string()},
                 {"entries", entries.size()},
                 {"bytes", bytes},
                 {"max_bytes", options.max_bytes},
                 {"hits", hits},
                 {"misses", store.stats().misses},
                 {"damaged", store.stats().damaged},
                 {"layers", Json::array()}};
    for (const auto& layer : layers) json["layers"].push_back(to_json(layer));
    print_json(json);
    return kDone;
  }
  Table table({"", ""});
  table.add_row({"directory", options.directory.string()});
  if (!store.reason().empty()) table.add_row({"read-only", store.reason()});
  table.add_row({"entries", std::to_string(entries.size())});
  table.add_row({"size", format_bytes(bytes) + " of " + format_bytes(options.max_bytes)});
  table.add_row({"hits", std::to_string(hits)});
  for (const auto& layer : layers) {
    const std::string state =
        layer.problem.empty() ? std::to_string(layer.entries) + " entries" : layer.problem;
    table.add_row({"layer", layer.path.string() + ": " + state});
  }
  table.print();
  return kDone;
}

Result<int> run_verify(jit::Engine& engine, const CacheArgs& args) {
  cache::Store& store = engine.store();
  LAYA_ASSIGN(const std::vector<cache::EntryInfo> entries, store.list());
  LAYA_ASSIGN(const std::vector<std::string> damaged, store.verify(args.repair));
  if (args.json) {
    print_json({{"entries", entries.size()}, {"damaged", damaged}, {"removed", args.repair}});
  } else {
    for (const std::string& digest : damaged) {
      std::printf("%s is damaged%s\n", digest.c_str(), args.repair ? ", removed" : "");
    }
    std::printf("%zu of %zu entries are damaged\n", damaged.size(), entries.size());
  }
  return damaged.empty() || args.repair ? kDone : kWorkFailed;
}

void print_removed(int64_t removed, const CacheArgs& args) {
  if (args.json) {
    print_json({{"removed", removed}});
  } else {
    std::printf("removed %lld entries\n", static_cast<long long>(removed));
  }
}

Result<int> run_clear(jit::Engine& engine, const CacheArgs& args) {
  LAYA_ASSIGN(const int64_t removed, engine.store().clear());
  print_removed(removed, args);
  return kDone;
}

/// Whether the compiler installed here for the entry's backend is another one.
bool is_of_another_compiler(jit::Engine& engine, const cache::EntryInfo& entry) {
  const Json metadata = metadata_of(entry);
  if (!metadata.contains("compile_seconds")) return false;  // No kernel: tuned tiles, for one.
  const bool is_cuda = metadata.value("target", "").starts_with("sm_");
  const auto backend = is_cuda ? jit::Backend::kCuda : jit::Backend::kCpu;
  const std::string& installed = engine.compiler(backend).identity();
  return !installed.empty() && installed != entry.producer;
}

Result<int> run_prune(jit::Engine& engine, const CacheArgs& args) {
  const bool some = selects(args) || args.other_compilers;
  if (some != args.to.empty()) {
    return fail(ErrorKind::kBadInput,
                "say what to remove: either --to SIZE, or options that select entries (`laya "
                "cache clear` removes all)");
  }
  int64_t removed = 0;
  if (some) {
    LAYA_ASSIGN(auto entries, select_entries(engine, args));
    if (args.other_compilers) {
      std::erase_if(entries, [&](const cache::EntryInfo& entry) {
        return !is_of_another_compiler(engine, entry);
      });
    }
    LAYA_ASSIGN(removed, engine.store().remove(entries));
  } else {
    LAYA_ASSIGN(const int64_t bytes, jit::parse_bytes("--to", args.to));
    LAYA_ASSIGN(removed, engine.store().shrink(bytes));
  }
  print_removed(removed, args);
  return kDone;
}

/// The options by which entries are selected.
void add_selection(CLI::App& app, CacheArgs& args) {
  app.add_option("--target", args.targets, "Only of these targets, such as sm_90a,cpu")
      ->delimiter(',');
  app.add_option("--template", args.templates, "Only of these templates, such as gemm,attention")
      ->delimiter(',');
  app.add_option("--compiler", args.compilers, "Only by compilers whose identity begins so")
      ->delimiter(',');
  app.add_option("--model", args.choice.directory, "Only what this checkpoint needs");
  app.add_option("--preset", args.choice.preset, "Only what this model shape needs");
  app.add_option("--dtype", args.dtypes, "With --model or --preset: the dtypes meant")
      ->delimiter(',');
}

std::string check_key_prefix(const std::string& text) {
  const bool is_prefix =
      text.size() >= 4 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_prefix ? "" : "'" + text + "' is not 4 to 32 hexadecimal digits";
}

using Action = Result<int> (*)(jit::Engine&, const CacheArgs&);

/// The subcommands of `app`, each with its action.
std::vector<std::pair<CLI::App*, Action>> add_actions(CLI::App& app, CacheArgs& args) {
  std::vector<std::pair<CLI::App*, Action>> actions;
  const auto add = [&](const char* name, const char* meaning, Action action) -> CLI::App& {
    CLI::App* sub = app.add_subcommand(name, meaning);
    sub->add_flag("--json", args.json, "Machine-readable output");
    actions.emplace_back(sub, action);
    return *sub;
  };
  add("stats", "Where it is, how many entries, how large; the layers", run_stats);

  CLI::App& list = add("list", "Entries, most recently used first", list_entries);
  add_selection(list, args);
  list.add_option("--sort", args.sort, "used, hits, size, created or kernel")
      ->check(CLI::IsMember({"used", "hits", "size", "created", "kernel"}))
      ->capture_default_str();
  list.add_option("--limit", args.limit, "At most so many")->check(CLI::PositiveNumber);

  CLI::App& show = add(
      "show", "Everything about an entry: attributes, key fields, the source compiled", show_entry);
  show.add_option("KEY", args.key, "The key's first digits, at least 4")
      ->required()
      ->check(check_key_prefix);
  show.add_flag("--disassemble", args.disassemble, "Its machine code too");

  add("explain", "Whether a kernel is stored, and if not, what differs from the nearest entry",
      explain_spec)
      .add_option("SPEC", args.spec,
                  "Such as 'gemm{ACT=none,...}@sm_90a'; `laya cache list` has them")
      ->required();

  add("verify", "Check every entry against its checksum; exits 1 on damage", run_verify)
      .add_flag("--repair", args.repair, "Remove damaged entries");

  CLI::App& prune = add("prune", "Remove some entries and give the space back", run_prune);
  add_selection(prune, args);
  prune.add_option("--to", args.to, "Least recently used first, until this is left: 500MiB");
  prune.add_flag("--other-compilers", args.other_compilers,
                 "Those that the compiler installed here did not make");

  add("clear", "Remove all entries", run_clear);

  CLI::App& to_file = add("export",
                          "Write entries to a bundle: one file that is a layer "
                          "(LAYA_CACHE_LAYERS) or can be imported elsewhere",
                          export_bundle);
  add_selection(to_file, args);
  to_file.add_option("FILE", args.file, "Replaced if it exists")->required();

  CLI::App& from_file = add("import", "Check a bundle and add what is not here yet", import_bundle);
  from_file.add_option("FILE", args.file, "What `laya cache export` wrote")->required();
  from_file.add_flag("--dry-run", args.dry_run, "Only check it, and say what is inside");
  return actions;
}

}  // namespace

Command add_cache(CLI::App& laya) {
  auto args = std::make_shared<CacheArgs>();
  CLI::App* app = laya.add_subcommand("cache", "Look at the artifact cache (LAYA_CACHE_DIR)");
  app->require_subcommand(1);
  const auto actions = add_actions(*app, *args);
  return {app, [args, actions]() -> int {
            for (const auto& [sub, action] : actions) {
              if (!sub->parsed()) continue;
              const auto engine = open_engine();
              if (!engine) return report(engine.error());
              const Result<int> status = action(**engine, *args);
              return status ? *status : report(status.error());
            }
            return kWrongUsage;
          }};
}

}  // namespace laya::tools
