// `laya cache list | show | explain`: single entries, for people and programs.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <set>

#include "model/tuned_tiles.h"
#include "tools/cache_command.h"
#include "tools/disassembly.h"
#include "tools/table.h"

namespace laya::tools {
namespace {

std::string format_time(int64_t seconds) {
  const auto when = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[32];
  if (gmtime_r(&when, &parts) == nullptr) return "-";
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &parts)};
}

std::string kernel_of(const cache::EntryInfo& entry) {
  return metadata_of(entry).value("kernel", entry.metadata);
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

/// The keys of all kernels of the chosen model and of its tuned tiles; nothing if none is chosen.
Result<std::optional<std::set<std::string>>> model_keys(jit::Engine& engine,
                                                        const CacheArgs& args) {
  if (args.choice.directory.empty() && args.choice.preset.empty()) return std::nullopt;
  if (args.targets.empty()) {
    return fail(ErrorKind::kBadInput, "a model's kernels depend on the target: give --target too");
  }
  LAYA_ASSIGN(const std::vector<model::Plan> plans,
              plans_of(args.choice, args.targets, args.dtypes));
  std::set<std::string> keys;
  for (const model::Plan& plan : plans) {
    for (const cache::Key& key : model::tuned_tiles_keys(plan)) keys.insert(key.digest.hex());
  }
  for (const jit::KernelSpec& spec : specs_of(plans, engine)) {
    LAYA_ASSIGN(const cache::Key key, engine.key(spec));
    keys.insert(key.digest.hex());
  }
  return keys;
}

/// The names of the targets that `words` mean.
Result<std::set<std::string>> target_names(const std::vector<std::string>& words) {
  std::set<std::string> names;
  for (const std::string& word : words) {
    LAYA_ASSIGN(const jit::Target target, jit::parse_target(word));
    names.insert(target.name);
  }
  return names;
}

bool is_listed(const std::vector<std::string>& list, const std::string& word) {
  return list.empty() || std::find(list.begin(), list.end(), word) != list.end();
}

bool has_listed_prefix(const std::vector<std::string>& list, const std::string& word) {
  return list.empty() || std::any_of(list.begin(), list.end(), [&](const std::string& prefix) {
           return word.starts_with(prefix);
         });
}

/// list() hands them out most recently used first.
void sort_entries(std::vector<cache::EntryInfo>& entries, const std::string& order) {
  const auto by = [&](auto value, bool descending) {
    std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
      return descending ? value(b) < value(a) : value(a) < value(b);
    });
  };
  if (order == "hits") by([](const cache::EntryInfo& entry) { return entry.hits; }, true);
  if (order == "size") by([](const cache::EntryInfo& entry) { return entry.stored_bytes; }, true);
  if (order == "created") by([](const cache::EntryInfo& entry) { return entry.created_at; }, true);
  if (order == "kernel") by(kernel_of, false);
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

}  // namespace

Json metadata_of(const cache::EntryInfo& entry) {
  Json metadata = Json::parse(entry.metadata, nullptr, /*allow_exceptions=*/false);
  return metadata.is_object() ? metadata : Json::object();
}

bool selects(const CacheArgs& args) {
  return !args.targets.empty() || !args.templates.empty() || !args.compilers.empty() ||
         !args.choice.directory.empty() || !args.choice.preset.empty();
}

Result<std::vector<cache::EntryInfo>> select_entries(jit::Engine& engine, const CacheArgs& args) {
  LAYA_ASSIGN(const auto keys, model_keys(engine, args));
  LAYA_ASSIGN(const std::set<std::string> targets, target_names(args.targets));
  LAYA_ASSIGN(std::vector<cache::EntryInfo> entries, engine.store().list());
  std::erase_if(entries, [&](const cache::EntryInfo& entry) {
    const Json metadata = metadata_of(entry);
    return (keys && !keys->contains(entry.digest)) ||
           (!targets.empty() && !targets.contains(metadata.value("target", ""))) ||
           !is_listed(args.templates, metadata.value("template", "")) ||
           !has_listed_prefix(args.compilers, entry.producer);
  });
  return entries;
}

Result<int> list_entries(jit::Engine& engine, const CacheArgs& args) {
  LAYA_ASSIGN(std::vector<cache::EntryInfo> entries, select_entries(engine, args));
  sort_entries(entries, args.sort);
  if (args.limit > 0 && static_cast<size_t>(args.limit) < entries.size()) {
    entries.resize(static_cast<size_t>(args.limit));
  }
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
                   without_features(kernel_of(entry))});
  }
  table.print();
  return kDone;
}

Result<int> show_entry(jit::Engine& engine, const CacheArgs& args) {
  LAYA_ASSIGN(const std::vector<cache::EntryInfo> entries, engine.store().show(args.key));
  if (entries.empty()) {
    return fail(ErrorKind::kNotCached, "no entry's key begins with '" + args.key + "'");
  }
  Json list = Json::array();
  for (const cache::EntryInfo& entry : entries) {
    std::string code;
    if (args.disassemble) {
      LAYA_ASSIGN(code, disassemble(entry.artifact));
    }
    if (args.json) {
      list.push_back(to_json(entry));
      if (args.disassemble) list.back()["disassembly"] = code;
    } else {
      print_entry(entry);
      if (args.disassemble) std::printf("disassembly:\n%s\n", code.c_str());
    }
  }
  if (args.json) print_json(list);
  return kDone;
}

Result<int> explain_spec(jit::Engine& engine, const CacheArgs& args) {
  LAYA_ASSIGN(const jit::KernelSpec spec, jit::parse_kernel_spec(args.spec));
  LAYA_ASSIGN(const cache::Key key, engine.key(spec));
  LAYA_ASSIGN(const std::string text, engine.explain(spec));
  if (args.json) {
    print_json({{"spec", spec.to_string()}, {"key", key.digest.hex()}, {"explanation", text}});
  } else {
    std::printf("%s\n%s\n", without_features(spec.to_string()).c_str(), text.c_str());
  }
  return kDone;
}

}  // namespace laya::tools
