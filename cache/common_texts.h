// The common texts of a database, each read from it once. Internal to cache/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cache/codec.h"
#include "cache/fault.h"
#include "cache/rows.h"
#include "cache/sqlite.h"

namespace laya::cache {

/// A row, and what completes its key text.
struct Entry {
  Row row;
  std::shared_ptr<const std::string> common;  ///< null: it is lost or damaged
  /// Whether the record is as it was stored, and where find() looks for it. Without the common text
  /// nobody can tell.
  bool is_sound() const {
    return common && cache::is_sound(row.record, *common) &&
           row.id == row_id(row.record.digest, row.record.producer);
  }
  /// Whether this is the record for a key of this text.
  bool has_key_text(std::string_view text) const {
    return common && cache::has_key_text(row.record, *common, text);
  }
};

/// Holds plain copies of what was read, checked in full, so that comparing a key text with what is
/// stored does not read and unpack the same source texts for every record. Not thread-safe: guarded
/// as the connection is.
class CommonTexts {
 public:
  /// Completes `row` from memory or from `connection`.
  Attempt<std::optional<Entry>> complete(Connection& connection, std::optional<Row> row);

 private:
  Attempt<std::shared_ptr<const std::string>> get(Connection& connection, const Digest& digest);

  std::map<Digest, std::shared_ptr<const std::string>> texts_;
  size_t bytes_ = 0;  ///< of all texts_
};

}  // namespace laya::cache
