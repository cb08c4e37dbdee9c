// What people ask of a store: list, show, verify, clear. Unlike find() and put(), these report.
#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "cache/result.h"
#include "cache/sqlite_store.h"

namespace laya::cache {
namespace {

constexpr size_t kShortestPrefix = 4;

/// A whole digest from its first digits and `filler` for the others; nothing if it has no such
/// form.
std::optional<Digest> digest_from_prefix(std::string_view prefix, char filler) {
  std::string hex(prefix);
  const size_t digits = Digest{}.hex().size();
  if (hex.size() < digits) hex.resize(digits, filler);
  return Digest::from_hex(hex);
}

}  // namespace

Result<std::vector<EntryInfo>> SqliteStore::list() {
  count_uses();
  const Digest first = *digest_from_prefix("", '0'), last = *digest_from_prefix("", 'f');
  return result_of(
      attempt([&](Connection& connection) { return read_entries(connection, first, last); }));
}

Result<std::vector<EntryInfo>> SqliteStore::show(std::string_view digest_prefix) {
  const auto first = digest_from_prefix(digest_prefix, '0');
  const auto last = digest_from_prefix(digest_prefix, 'f');
  if (digest_prefix.size() < kShortestPrefix || !first || !last) {
    return fail(ErrorKind::kBadInput, "\"" + std::string(digest_prefix) +
                                          "\" is no beginning of a digest: give 4 to 32 digits of "
                                          "0-9 and a-f");
  }
  count_uses();
  LAYA_ASSIGN(auto listed, result_of(attempt([&](Connection& connection) {
                return read_entries(connection, *first, *last);
              })));
  std::vector<EntryInfo> entries;
  for (EntryInfo& entry : listed) {
    LAYA_ASSIGN(auto found, result_of(read_entry([&](Connection& connection) {
                  return read_row(connection, entry.id);
                })));
    if (!found) continue;  // Removed since.
    if (!found->is_sound()) {
      return fail(ErrorKind::kStoreError, "record " + entry.digest + " is damaged");
    }
    StoredRecord& record = found->row.record;
    LAYA_ASSIGN(entry.key, parse_key(record.own_text + *found->common));
    entry.artifact = decode(std::move(record))->artifact;
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::vector<std::string>> SqliteStore::verify(bool repair) {
  if (repair) LAYA_TRY(result_of(repair_structure()));
  LAYA_ASSIGN(const bool sound, result_of(attempt(has_sound_structure)));
  if (!sound) {
    return fail(ErrorKind::kStoreError, place_.file.string() + " has a damaged structure");
  }
  LAYA_ASSIGN(const auto ids, result_of(attempt(read_ids)));
  {
    const std::lock_guard lock(mutex_);
    texts_ = {};  // It is what lies in the file that is asked for.
  }
  std::vector<std::string> damaged;
  for (const int64_t id : ids) {
    // One record at a time, so that others can work meanwhile.
    LAYA_ASSIGN(
        const auto entry,
        result_of(read_entry([&](Connection& connection) { return read_row(connection, id); })));
    if (!entry || entry->is_sound()) continue;
    damaged.push_back(entry->row.record.digest.hex());
    if (!repair) continue;
    LAYA_TRY(
        result_of(attempt([&](Connection& connection) { return remove_row(connection, id); })));
  }
  return damaged;
}

Attempt<void> SqliteStore::repair_structure() {
  LAYA_TRY(repair());
  return attempt([](Connection& connection) -> Attempt<void> {
    LAYA_ASSIGN(const bool sound, has_sound_structure(connection));
    if (!sound) return fail(Fault::kDamaged, "the structure cannot be repaired");
    return {};
  });
}

Result<int64_t> SqliteStore::clear() {
  take_uses();
  LAYA_ASSIGN(
      const int64_t removed,
      result_of(attempt([](Connection& connection) { return remove_all_rows(connection); })));
  give_back_space();
  return removed;
}

Result<int64_t> SqliteStore::remove(const std::vector<EntryInfo>& entries) {
  int64_t removed = 0;
  for (const EntryInfo& entry : entries) {
    // One record at a time, so that others can work meanwhile.
    LAYA_ASSIGN(removed, result_of(attempt([&](Connection& connection) -> Attempt<int64_t> {
                  LAYA_TRY(remove_row(connection, entry.id));
                  return removed + connection.changes();
                })));
  }
  if (removed > 0) give_back_space();
  return removed;
}

Result<int64_t> SqliteStore::shrink(int64_t bytes) {
  count_uses();
  int64_t removed = 0;
  for (int64_t batch = kRowsPerEviction; batch == kRowsPerEviction; removed += batch) {
    LAYA_ASSIGN(batch, result_of(attempt([&](Connection& connection) {
                  return evict(connection, bytes, kRowsPerEviction, /*keep=*/0);
                })));
  }
  counters_.evicted += removed;
  if (removed > 0) give_back_space();
  return removed;
}

void SqliteStore::give_back_space() {
  // Not worth an error: others may be reading.
  (void)attempt([](Connection& connection) -> Attempt<bool> {
    LAYA_TRY(connection.execute("VACUUM"));
    return Query(connection, "PRAGMA wal_checkpoint(TRUNCATE)").step();
  });
}

Result<int64_t> SqliteStore::stored_bytes() {
  return result_of(attempt(total_bytes));
}

}  // namespace laya::cache
