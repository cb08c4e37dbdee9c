// The SQL of the store.
#include "cache/rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>

#include "cache/result.h"

namespace laya::cache {
namespace {

#define LAYA_ROW                                                                        \
  "SELECT id, digest, producer, common, checksum, artifact_bytes, metadata, own_text, " \
  "artifact "                                                                           \
  "FROM artifacts "

#define LAYA_TEXT "SELECT digest, bytes, text FROM texts "

/// The bits of an id that depend on the producer.
constexpr int64_t kProducerBits = (int64_t{1} << 31) - 1;

std::string_view bytes_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

/// A blob of another size is damaged; it becomes a digest that fits nothing but by chance.
Digest digest_from(std::string_view bytes) {
  Digest digest;
  std::copy_n(bytes.begin(), std::min(bytes.size(), digest.bytes.size()), digest.bytes.begin());
  return digest;
}

/// Runs a query for one row in the columns of LAYA_ROW.
Attempt<std::optional<Row>> read_one(Query& query) {
  LAYA_ASSIGN(const bool found, query.step());
  if (!found) return std::nullopt;
  Row row;
  row.id = query.integer(0);
  row.record.digest = digest_from(query.blob(1));
  row.record.producer = query.blob(2);
  row.record.common = digest_from(query.blob(3));
  row.record.checksum = digest_from(query.blob(4));
  row.record.artifact_bytes = query.integer(5);
  row.record.metadata = query.blob(6);
  row.record.own_text = query.blob(7);
  row.record.artifact = query.blob(8);
  return row;
}

/// Runs a query for one text in the columns of LAYA_TEXT.
Attempt<std::optional<StoredText>> read_one_text(Query& query) {
  LAYA_ASSIGN(const bool found, query.step());
  if (!found) return std::nullopt;
  return StoredText{digest_from(query.blob(0)), query.integer(1), std::string(query.blob(2))};
}

/// Sees to it that the text is there and undamaged.
Attempt<void> ensure_text(Connection& connection, const Digest& digest, std::string_view text) {
  if (text.empty()) return {};
  LAYA_ASSIGN(const auto stored, read_text(connection, digest));
  const auto known = stored ? decode_text(*stored) : std::nullopt;
  if (known && *known == text) return {};
  if (known) return fail(Fault::kOther, "two texts have the digest " + digest.hex());
  LAYA_TRY(Query(connection, "DELETE FROM texts WHERE digest = ?1", Blob{bytes_of(digest)}).run());
  return write_text(connection, encode_text(text));
}

/// The next recency number. No clock: a clock can be set back. A number that bit rot has made huge
/// is left out, or it would use up all numbers.
Attempt<int64_t> next_use(Connection& connection) {
  return connection.integer(
      "SELECT coalesce(max(used), 0) + 1 FROM usage WHERE used < 4611686018427387904");
}

Attempt<void> insert_record(Connection& connection, int64_t id, const StoredRecord& record,
                            int64_t created_at) {
  return Query(connection,
               "INSERT INTO artifacts(id, digest, producer, common, checksum, created_at, "
               "artifact_bytes, metadata, own_text, artifact) "
               "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
               id, Blob{bytes_of(record.digest)}, Blob{record.producer},
               Blob{bytes_of(record.common)}, Blob{bytes_of(record.checksum)}, created_at,
               record.artifact_bytes, Blob{record.metadata}, Blob{record.own_text},
               Blob{record.artifact})
      .run();
}

/// Empties `recent`: the ids in the order of use, 8 bytes each. What damage has made of them may
/// name no record and then counts for nothing.
Attempt<std::vector<int64_t>> take_appended_uses(Connection& connection) {
  static_assert(std::endian::native == std::endian::little, "else databases are not portable");
  std::vector<int64_t> ids;
  LAYA_ASSIGN(const int64_t rows, appended_uses(connection));
  if (rows == 0) return ids;
  {
    Query query(connection, "SELECT ids FROM recent ORDER BY rowid");
    for (;;) {
      LAYA_ASSIGN(const bool found, query.step());
      if (!found) break;
      int64_t id = 0;
      std::string_view rest = query.blob(0);
      for (; rest.size() >= sizeof(id); rest.remove_prefix(sizeof(id))) {
        std::memcpy(&id, rest.data(), sizeof(id));
        ids.push_back(id);
      }
    }
  }
  LAYA_TRY(connection.execute("DELETE FROM recent"));
  return ids;
}

Attempt<void> insert_usage(Connection& connection, int64_t id, int64_t used,
                           const StoredRecord& record) {
  return Query(connection, "INSERT INTO usage(id, used, hits, stored_bytes) VALUES(?1, ?2, 0, ?3)",
               id, used, stored_bytes(record))
      .run();
}

}  // namespace

int64_t row_id(const Digest& digest, std::string_view producer) {
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits = bits << 8 | digest.bytes[i];
  return static_cast<int64_t>(bits >> 1) ^
         (static_cast<int64_t>(checksum_of(producer)) & kProducerBits);
}

Attempt<std::optional<Row>> read_row(Connection& connection, const Digest& digest,
                                     std::string_view producer) {
  const int64_t id = row_id(digest, producer);
  if (producer.empty()) {
    Query query(connection,
                LAYA_ROW
                "WHERE id = (SELECT id FROM artifacts LEFT JOIN usage USING(id) "
                "WHERE id BETWEEN ?1 AND ?2 AND digest = ?3 ORDER BY used DESC LIMIT 1)",
                id & ~kProducerBits, id | kProducerBits, Blob{bytes_of(digest)});
    return read_one(query);
  }
  LAYA_ASSIGN(auto row, read_row(connection, id));
  if (!row) return std::nullopt;
  const StoredRecord& record = row->record;
  const bool matches = record.digest == digest && record.producer == producer;
  // What is damaged is no other record: the caller has to know of it.
  if (!matches && is_intact(record)) return std::nullopt;
  return row;
}

Attempt<std::optional<Row>> read_row(Connection& connection, int64_t id) {
  Query query(connection, LAYA_ROW "WHERE id = ?1", id);
  return read_one(query);
}

Attempt<std::vector<int64_t>> read_ids(Connection& connection) {
  // NOT INDEXED: the table itself is what verify() wants to see, not an index over it.
  Query query(connection, "SELECT id FROM artifacts NOT INDEXED ORDER BY id");
  std::vector<int64_t> ids;
  for (;;) {
    LAYA_ASSIGN(const bool found, query.step());
    if (!found) return ids;
    ids.push_back(query.integer(0));
  }
}

Attempt<bool> has_row(Connection& connection, int64_t id) {
  Query query(connection, "SELECT 1 FROM artifacts WHERE id = ?1", id);
  return query.step();
}

int64_t now() {
  return std::time(nullptr);
}

Attempt<int64_t> write_row(Connection& connection, const StoredRecord& record,
                           std::string_view common, int64_t created_at) {
  const int64_t id = row_id(record.digest, record.producer);
  LAYA_TRY(remove_row(connection, id));
  LAYA_TRY(ensure_text(connection, record.common, common));
  LAYA_TRY(insert_record(connection, id, record, created_at));
  LAYA_ASSIGN(const int64_t used, next_use(connection));
  LAYA_TRY(insert_usage(connection, id, used, record));
  return id;
}

Attempt<bool> restore_row(Connection& connection, const StoredRecord& record, int64_t used) {
  const int64_t id = row_id(record.digest, record.producer);
  const auto inserted = insert_record(connection, id, record, now());
  if (!inserted && inserted.error().fault == Fault::kInconsistent) return false;
  LAYA_TRY(inserted);
  LAYA_TRY(insert_usage(connection, id, used, record));
  return true;
}

Attempt<std::optional<StoredText>> read_text(Connection& connection, const Digest& digest) {
  Query query(connection, LAYA_TEXT "WHERE digest = ?1", Blob{bytes_of(digest)});
  return read_one_text(query);
}

Attempt<std::optional<StoredText>> scan_for_text(Connection& connection, const Digest& digest) {
  Query query(connection, LAYA_TEXT "NOT INDEXED WHERE digest = ?1", Blob{bytes_of(digest)});
  return read_one_text(query);
}

Attempt<void> write_text(Connection& connection, const StoredText& text) {
  return Query(connection, "INSERT INTO texts(digest, bytes, text) VALUES(?1, ?2, ?3)",
               Blob{bytes_of(text.digest)}, text.bytes, Blob{text.text})
      .run();
}

Attempt<std::vector<Digest>> read_missing_texts(Connection& connection) {
  const Digest not_stored = digest_of("");
  Query query(connection,
              "SELECT DISTINCT common FROM artifacts WHERE common <> ?1 "
              "AND NOT EXISTS (SELECT 1 FROM texts WHERE digest = common)",
              Blob{bytes_of(not_stored)});
  std::vector<Digest> missing;
  for (;;) {
    LAYA_ASSIGN(const bool found, query.step());
    if (!found) return missing;
    missing.push_back(digest_from(query.blob(0)));
  }
}

Attempt<void> remove_row(Connection& connection, int64_t id) {
  return Query(connection, "DELETE FROM artifacts WHERE id = ?1", id).run();
}

Attempt<int64_t> remove_all_rows(Connection& connection) {
  LAYA_TRY(Query(connection, "DELETE FROM artifacts").run());
  return connection.changes();
}

Attempt<void> write_uses(Connection& connection, const std::vector<int64_t>& new_ids) {
  LAYA_ASSIGN(std::vector<int64_t> ids, take_appended_uses(connection));
  ids.insert(ids.end(), new_ids.begin(), new_ids.end());
  if (ids.empty()) return {};
  LAYA_ASSIGN(int64_t used, next_use(connection));
  for (const int64_t id : ids) {
    LAYA_TRY(
        Query(connection, "UPDATE usage SET used = ?2, hits = hits + 1 WHERE id = ?1", id, used++)
            .run());
  }
  return {};
}

Attempt<int64_t> appended_uses(Connection& connection) {
  return connection.integer("SELECT count(*) FROM recent");
}

Attempt<void> append_uses(Connection& connection, const std::vector<int64_t>& ids) {
  constexpr int64_t kMostRows = 32;
  LAYA_ASSIGN(const int64_t rows, appended_uses(connection));
  if (rows >= kMostRows) return write_uses(connection, ids);
  const std::string_view bytes(reinterpret_cast<const char*>(ids.data()),
                               ids.size() * sizeof(ids[0]));
  return Query(connection, "INSERT INTO recent(ids) VALUES(?1)", Blob{bytes}).run();
}

Attempt<int64_t> total_bytes(Connection& connection) {
  return connection.integer("SELECT bytes FROM totals");
}

Attempt<int64_t> reusable_bytes(Connection& connection) {
  LAYA_ASSIGN(const int64_t pages, connection.integer("PRAGMA freelist_count"));
  LAYA_ASSIGN(const int64_t size, connection.integer("PRAGMA page_size"));
  return pages * size;
}

Attempt<int64_t> evict(Connection& connection, int64_t target, int64_t limit, int64_t keep) {
  LAYA_ASSIGN(Transaction transaction, Transaction::begin(connection));
  LAYA_ASSIGN(int64_t bytes, total_bytes(connection));
  std::vector<int64_t> ids;
  {
    Query query(connection,
                "SELECT id, stored_bytes FROM usage WHERE id <> ?2 ORDER BY used LIMIT ?1", limit,
                keep);
    while (bytes > target) {
      LAYA_ASSIGN(const bool found, query.step());
      if (!found) break;
      ids.push_back(query.integer(0));
      bytes -= query.integer(1);
    }
  }
  for (const int64_t id : ids) {
    LAYA_TRY(remove_row(connection, id));
    // Removed with the artifact by a trigger, unless damage has parted the two.
    LAYA_TRY(Query(connection, "DELETE FROM usage WHERE id = ?1", id).run());
  }
  LAYA_TRY(transaction.commit());
  return static_cast<int64_t>(ids.size());
}

Attempt<std::vector<EntryInfo>> read_entries(Connection& connection, const Digest& first,
                                             const Digest& last) {
  Query query(connection,
              "SELECT id, digest, producer, metadata, artifact_bytes, coalesce(stored_bytes, 0), "
              "coalesce(hits, 0), created_at FROM artifacts LEFT JOIN usage USING(id) "
              "WHERE id BETWEEN ?1 AND ?2 AND digest BETWEEN ?3 AND ?4 ORDER BY used DESC, id",
              row_id(first, "") & ~kProducerBits, row_id(last, "") | kProducerBits,
              Blob{bytes_of(first)}, Blob{bytes_of(last)});
  std::vector<EntryInfo> entries;
  for (;;) {
    LAYA_ASSIGN(const bool found, query.step());
    if (!found) return entries;
    EntryInfo& entry = entries.emplace_back();
    entry.id = query.integer(0);
    entry.digest = digest_from(query.blob(1)).hex();
    entry.producer = query.blob(2);
    entry.metadata = query.blob(3);
    entry.artifact_bytes = query.integer(4);
    entry.stored_bytes = query.integer(5);
    entry.hits = query.integer(6);
    entry.created_at = query.integer(7);
  }
}

Attempt<bool> has_sound_structure(Connection& connection) {
  LAYA_ASSIGN(const int64_t problems,
              connection.integer("SELECT count(*) FROM pragma_integrity_check(1) "
                                 "WHERE integrity_check <> 'ok'"));
  return problems == 0;
}

Attempt<void> repair_accounts(Connection& connection) {
  LAYA_ASSIGN(Transaction transaction, Transaction::begin(connection));
  // Without a row in totals the triggers change nothing, whatever damage has made of its number.
  LAYA_TRY(connection.execute(
      "DELETE FROM totals; REINDEX; DELETE FROM usage WHERE id NOT IN (SELECT id FROM artifacts);"
      "DELETE FROM texts WHERE digest NOT IN (SELECT common FROM artifacts)"));
  LAYA_TRY(Query(connection,
                 "INSERT INTO usage(id, used, hits, stored_bytes) "
                 "SELECT id, 0, 0, ?1 + length(producer) + length(metadata) + length(own_text) + "
                 "length(artifact) FROM artifacts WHERE id NOT IN (SELECT id FROM usage)",
                 kRowOverhead)
               .run());
  LAYA_TRY(
      connection.execute("INSERT INTO totals SELECT (SELECT coalesce(sum(stored_bytes), 0) "
                         "FROM usage) + (SELECT coalesce(sum(length(text)), 0) FROM texts)"));
  return transaction.commit();
}

}  // namespace laya::cache
