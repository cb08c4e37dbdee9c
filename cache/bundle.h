// Bundles: one sealed file that carries records to another directory, user or host. It is a
// database of the same tables as a cache, so it serves as a layer (cache/layers.h) as it is;
// Store::export_bundle() writes it and Store::import_bundle() merges it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cache/key.h"
#include "cache/result.h"

namespace laya::cache {

/// What a bundle says of itself.
struct BundleManifest {
  int64_t entries = 0;
  int64_t bytes = 0;                   ///< of all records, without the common texts of their keys
  std::vector<std::string> producers;  ///< what made the artifacts; sorted, each once
  std::vector<KeyField> notes;  ///< what its maker says of the contents: targets, version, ...
  std::string seal;  ///< digest of the manifest's other fields and every record's checksum, hex
};

/// Reads a bundle and checks all of it: the file's structure, each record, the seal over all.
/// kBadInput: it is no bundle, is of another format version, or is damaged; the message says where.
/// kStoreError: it cannot be read, or others could have written it.
Result<BundleManifest> check_bundle(const std::filesystem::path& file);

/// What became of a bundle's records.
struct ImportReport {
  BundleManifest manifest;
  int64_t added = 0;
  int64_t kept = 0;     ///< the cache had one for the same key and producer, and keeps it
  int64_t refused = 0;  ///< they don't fit under the size cap beside what is there
};

}  // namespace laya::cache
