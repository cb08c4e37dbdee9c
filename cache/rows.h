// The SQL of the store: one function per thing that is done to the tables of database.h.
// Internal to cache/. The functions know nothing of threads, waiting or counting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/codec.h"
#include "cache/fault.h"
#include "cache/sqlite.h"
#include "cache/store.h"

namespace laya::cache {

struct Row {
  int64_t id = 0;
  StoredRecord record;
};

/// The id of the row of `digest` made by `producer`: the digest's first 63 bits, the lower 31 of
/// them mixed with the producer. Two records with one id, which nobody will see, replace each
/// other.
int64_t row_id(const Digest& digest, std::string_view producer);

/// The row of `digest` made by `producer`, or, if `producer` is empty, by anyone: that with the
/// greatest recency number.
Attempt<std::optional<Row>> read_row(Connection& connection, const Digest& digest,
                                     std::string_view producer);
Attempt<std::optional<Row>> read_row(Connection& connection, int64_t id);

/// The ids of all rows, in their order.
Attempt<std::vector<int64_t>> read_ids(Connection& connection);

/// Whether there is a row `id`, in whatever state.
Attempt<bool> has_row(Connection& connection, int64_t id);

/// The time to write down as created_at: seconds since 1970.
int64_t now();

/// Inserts `record`, whose key ends with `common`, in place of one with the same digest and
/// producer; returns its row_id(). A damaged copy of `common` is put right. Call within a
/// transaction.
Attempt<int64_t> write_row(Connection& connection, const StoredRecord& record,
                           std::string_view common, int64_t created_at);

/// Inserts a record of another database with the recency number `used`. False: it is there already.
/// Call within a transaction.
Attempt<bool> restore_row(Connection& connection, const StoredRecord& record, int64_t used);

/// The common text `digest`, as it is stored.
Attempt<std::optional<StoredText>> read_text(Connection& connection, const Digest& digest);
/// The same by reading all texts, for where the index is damaged.
Attempt<std::optional<StoredText>> scan_for_text(Connection& connection, const Digest& digest);
/// Inserts a text that is not there yet.
Attempt<void> write_text(Connection& connection, const StoredText& text);
/// The common texts that records name and that are not there.
Attempt<std::vector<Digest>> read_missing_texts(Connection& connection);

Attempt<void> remove_row(Connection& connection, int64_t id);
/// Returns how many there were.
Attempt<int64_t> remove_all_rows(Connection& connection);

/// Counts one hit for each of `ids`, given in the order of use, after those that were appended
/// before. Call within a transaction.
Attempt<void> write_uses(Connection& connection, const std::vector<int64_t>& ids);

/// The same, but cheap: most often the ids are only written down for the next write_uses(). Call
/// within a transaction.
Attempt<void> append_uses(Connection& connection, const std::vector<int64_t>& ids);

/// How many append_uses() wait for the next write_uses().
Attempt<int64_t> appended_uses(Connection& connection);

/// Bytes of all records and common texts, as counted against the size cap.
Attempt<int64_t> total_bytes(Connection& connection);

/// Bytes inside the file that new records can take without making it larger.
Attempt<int64_t> reusable_bytes(Connection& connection);

/// Rows removed by one transaction, so that others need not wait for a large eviction.
inline constexpr int64_t kRowsPerEviction = 64;

/// Removes least recently used rows, but never `keep`, until at most `target` bytes are left or
/// `limit` rows are gone; returns how many were removed. One transaction.
Attempt<int64_t> evict(Connection& connection, int64_t target, int64_t limit, int64_t keep);

/// All rows with a digest from `first` to `last`, most recently used first.
Attempt<std::vector<EntryInfo>> read_entries(Connection& connection, const Digest& first,
                                             const Digest& last);

/// Whether all of the database's structure is in order, indexes included. Reads the whole file.
Attempt<bool> has_sound_structure(Connection& connection);

/// Makes everything that follows from artifacts (indexes, usage, texts, totals) agree with it
/// again. One transaction.
Attempt<void> repair_accounts(Connection& connection);

}  // namespace laya::cache
