// `laya cache export | import`: one file that carries kernels to another machine.
#include <cstdio>
#include <set>

#include "cache/bundle.h"
#include "tools/cache_command.h"

namespace laya::tools {
namespace {

/// What the manifest should say beyond what the store knows by itself.
std::vector<cache::KeyField> notes_of(const std::vector<cache::EntryInfo>& entries) {
  std::set<std::string> targets, templates;
  for (const cache::EntryInfo& entry : entries) {
    const Json metadata = metadata_of(entry);
    targets.insert(metadata.value("target", "unknown"));
    templates.insert(metadata.value("template", "unknown"));
  }
  std::vector<cache::KeyField> notes;
  for (const std::string& target : targets) notes.push_back({"target", target});
  for (const std::string& name : templates) notes.push_back({"template", name});
  return notes;
}

Json to_json(const cache::BundleManifest& manifest) {
  Json json = {{"entries", manifest.entries},     {"bytes", manifest.bytes},
               {"producers", manifest.producers}, {"seal", manifest.seal},
               {"targets", Json::array()},        {"templates", Json::array()}};
  for (const cache::KeyField& note : manifest.notes) {
    if (note.tag == "target") json["targets"].push_back(note.value);
    if (note.tag == "template") json["templates"].push_back(note.value);
  }
  return json;
}

void print_manifest(const cache::BundleManifest& manifest) {
  std::printf("entries   %lld, %s\nseal      %s\n", static_cast<long long>(manifest.entries),
              format_bytes(manifest.bytes).c_str(), manifest.seal.c_str());
  for (const std::string& producer : manifest.producers) {
    std::printf("compiler  %s\n", producer.c_str());
  }
  for (const cache::KeyField& note : manifest.notes) {
    std::printf("%-9s %s\n", note.tag.c_str(), without_features(note.value).c_str());
  }
}

}  // namespace

Result<int> export_bundle(jit::Engine& engine, const CacheArgs& args) {
  LAYA_ASSIGN(const std::vector<cache::EntryInfo> entries, select_entries(engine, args));
  if (entries.empty()) {
    return fail(ErrorKind::kNotCached, selects(args) ? "no entry is selected; `laya cache list` "
                                                       "with the same options shows none"
                                                     : "the cache is empty; `laya warm` fills it");
  }
  LAYA_ASSIGN(const cache::BundleManifest manifest,
              engine.store().export_bundle(args.file, entries, notes_of(entries)));
  if (args.json) {
    Json json = to_json(manifest);
    json["file"] = args.file;
    print_json(json);
  } else {
    std::printf("wrote %s\n", args.file.c_str());
    print_manifest(manifest);
  }
  return kDone;
}

Result<int> import_bundle(jit::Engine& engine, const CacheArgs& args) {
  cache::ImportReport report;
  if (args.dry_run) {
    LAYA_ASSIGN(report.manifest, cache::check_bundle(args.file));
  } else {
    LAYA_ASSIGN(report, engine.store().import_bundle(args.file));
  }
  if (args.json) {
    Json json = to_json(report.manifest);
    if (!args.dry_run) {
      json["added"] = report.added;
      json["kept"] = report.kept;
      json["refused"] = report.refused;
    }
    print_json(json);
    return kDone;
  }
  print_manifest(report.manifest);
  if (args.dry_run) {
    std::printf("the bundle is whole; nothing was imported\n");
  } else {
    std::printf("%lld added, %lld kept, %lld refused (no room under the size cap)\n",
                static_cast<long long>(report.added), static_cast<long long>(report.kept),
                static_cast<long long>(report.refused));
  }
  return kDone;
}

}  // namespace laya::tools
