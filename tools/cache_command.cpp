// `laya cache stats | list | show KEY | verify | clear`: what the artifact store holds.
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cache/store.h"
#include "tools/command.h"
#include "tools/console.h"
#include "tools/table.h"

namespace laya::tools {
namespace {

struct CacheArgs {
  std::string key;
  bool repair = false;
  bool json = false;
};

struct OpenCache {
  std::unique_ptr<cache::Store> store;
  std::vector<std::filesystem::path> layers;
};

/// A person asks for this directory, so one that cannot be used is an error here.
Result<OpenCache> open_cache() {
  LAYA_ASSIGN(jit::Options options, command_options());
  OpenCache open;
  open.layers = options.cache_layers;
  open.store = cache::Store::open(
      {.directory = options.cache_dir, .max_bytes = options.cache_max_bytes, .log = options.log});
  if (open.store->mode() == cache::StoreMode::kMemoryOnly) {
    return fail(ErrorKind::kStoreError, "no cache to look at: " + open.store->reason());
  }
  return open;
}

/// The engine's metadata; an empty object where another program wrote something else.
Json metadata_of(const cache::EntryInfo& entry) {
  Json metadata = Json::parse(entry.metadata, nullptr, /*allow_exceptions=*/false);
  return metadata.is_object() ? metadata : Json::object();
}

std::string format_time(int64_t seconds) {
  const auto when = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[32];
  if (gmtime_r(&when, &parts) == nullptr) return "-";
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &parts)};
}

Json to_json(const cache::EntryInfo& entry) {
  Json json = {{"key", entry.digest},
               {"producer", entry.producer},
               {"artifact_bytes", entry.artifact_bytes},
               {"stored_bytes", entry.stored_bytes},
               {"hits", entry.hits},
               {"created_at", entry.created_at},
               {"metadata", metadata_of(entry)}};
  if (!entry.key.empty()) {
    json["fields"] = Json::array();
    for (const cache::KeyField& field : entry.key) {
      json["fields"].push_back({{"tag", field.tag}, {"value", field.value}});
    }
  }
  return json;
}

Result<int> run_stats(cache::Store& store, const OpenCache& open, const CacheArgs& args) {
  LAYA_ASSIGN(const std::vector<cache::EntryInfo> entries, store.list());
  LAYA_ASSIGN(const int64_t bytes, store.stored_bytes());
  int64_t hits = 0;
  for (const cache::EntryInfo& entry : entries) hits += entry.hits;
  Json layers = Json::array();
  for (const auto& layer : open.layers) layers.push_back(layer.string());
  const cache::StoreOptions& options = store.options();
  if (args.json) {
    print_json({{"dir", options.directory.string()},
                {"entries", entries.size()},
                {"bytes", bytes},
                {"max_bytes", options.max_bytes},
                {"hits", hits},
                {"misses", store.stats().misses},
                {"damaged", store.stats().damaged},
                {"layers", layers}});
    return kDone;
  }
  Table table({"", ""});
  table.add_row({"directory", options.directory.string()});
  if (!store.reason().empty()) table.add_row({"read-only", store.reason()});
  table.add_row({"entries", std::to_string(entries.size())});
  table.add_row({"size", format_bytes(bytes) + " of " + format_bytes(options.max_bytes)});
  table.add_row({"hits", std::to_string(hits)});
  for (const auto& layer : layers) table.add_row({"layer", layer.get<std::string>()});
  table.print();
  return kDone;
}

Result<int> run_list(cache::Store& store, const OpenCache& /*open*/, const CacheArgs& args) {
  LAYA_ASSIGN(const std::vector<cache::EntryInfo> entries, store.list());
  if (args.json) {
    Json list = Json::array();
    for (const cache::EntryInfo& entry : entries) list.push_back(to_json(entry));
    print_json(list);
    return kDone;
  }
  Table table({"key", ">size", ">hits", "created (UTC)", "kernel"});
  for (const cache::EntryInfo& entry : entries) {
    table.add_row({entry.digest.substr(0, 12), format_bytes(entry.artifact_bytes),
                   std::to_string(entry.hits), format_time(entry.created_at),
                   without_features(metadata_of(entry).value("kernel", entry.metadata))});
  }
  table.print();
  return kDone;
}

void print_entry(const cache::EntryInfo& entry) {
  std::printf("key       %s\nproducer  %s\nsize      %s, %s stored\nhits      %lld\ncreated   %s\n",
              entry.digest.c_str(), entry.producer.c_str(),
              format_bytes(entry.artifact_bytes).c_str(), format_bytes(entry.stored_bytes).c_str(),
              static_cast<long long>(entry.hits), format_time(entry.created_at).c_str());
  std::printf("metadata  %s\n", entry.metadata.c_str());
  for (const cache::KeyField& field : entry.key) {
    const bool is_text = field.value.find('\n') != std::string::npos;
    std::printf("%s:%s%s\n", field.tag.c_str(), is_text ? "\n" : " ", field.value.c_str());
  }
}

Result<int> run_show(cache::Store& store, const OpenCache& /*open*/, const CacheArgs& args) {
  LAYA_ASSIGN(const std::vector<cache::EntryInfo> entries, store.show(args.key));
  if (entries.empty()) {
    return fail(ErrorKind::kNotCached, "no entry's key begins with '" + args.key + "'");
  }
  Json list = Json::array();
  for (const cache::EntryInfo& entry : entries) {
    if (args.json) {
      list.push_back(to_json(entry));
    } else {
      print_entry(entry);
    }
  }
  if (args.json) print_json(list);
  return kDone;
}

Result<int> run_verify(cache::Store& store, const OpenCache& /*open*/, const CacheArgs& args) {
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

Result<int> run_clear(cache::Store& store, const OpenCache& /*open*/, const CacheArgs& args) {
  LAYA_ASSIGN(const int64_t removed, store.clear());
  if (args.json) {
    print_json({{"removed", removed}});
  } else {
    std::printf("removed %lld entries\n", static_cast<long long>(removed));
  }
  return kDone;
}

}  // namespace

Command add_cache(CLI::App& laya) {
  using Action = Result<int> (*)(cache::Store&, const OpenCache&, const CacheArgs&);
  auto args = std::make_shared<CacheArgs>();
  CLI::App* app = laya.add_subcommand("cache", "Look at the artifact cache (LAYA_CACHE_DIR)");
  app->require_subcommand(1);
  std::vector<std::pair<CLI::App*, Action>> actions;
  const auto add = [&](const char* name, const char* meaning, Action action) {
    CLI::App* sub = app->add_subcommand(name, meaning);
    sub->add_flag("--json", args->json, "Machine-readable output");
    actions.emplace_back(sub, action);
    return sub;
  };
  add("stats", "Where it is, how many entries, how large", run_stats);
  add("list", "All entries, most recently used first", run_list);
  add("show", "Everything about an entry: attributes, key fields, the source compiled", run_show)
      ->add_option("KEY", args->key, "The key's first digits, at least 4")
      ->required()
      ->check([](const std::string& text) {
        const bool is_prefix =
            text.size() >= 4 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
        return is_prefix ? "" : "'" + text + "' is not 4 to 32 hexadecimal digits";
      });
  add("verify", "Check every entry against its checksum; exits 1 on damage", run_verify)
      ->add_flag("--repair", args->repair, "Remove damaged entries");
  add("clear", "Remove all entries", run_clear);

  return {app, [args, actions]() -> int {
            for (const auto& [sub, action] : actions) {
              if (!sub->parsed()) continue;
              const Result<OpenCache> open = open_cache();
              if (!open) return report(open.error());
              const Result<int> status = action(*open->store, *open, *args);
              return status ? *status : report(status.error());
            }
            return kWrongUsage;
          }};
}

}  // namespace laya::tools
