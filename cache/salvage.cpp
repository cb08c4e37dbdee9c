// The ids of records lie in four trees; each of these is read from both ends up to its first
// damage, and each record that any of them names is looked up by its id.
#include "cache/salvage.h"

#include <optional>
#include <unordered_set>
#include <utility>

#include "cache/codec.h"
#include "cache/result.h"
#include "cache/rows.h"

namespace laya::cache {
namespace {

using std::chrono::steady_clock;

/// Records written by one transaction: what is written stays, should a later one fail.
constexpr int kRowsPerTransaction = 64;

/// Recency numbers from here on are damaged: they would keep a record for ever.
constexpr int64_t kMostUses = int64_t{1} << 48;

/// Ids and recency numbers. The first one puts the records that were used last first.
constexpr const char* kLists[] = {
    "SELECT id, used FROM usage INDEXED BY usage_by_use ORDER BY used DESC",
    "SELECT id, used FROM usage INDEXED BY usage_by_use ORDER BY used",
    "SELECT id, used FROM usage NOT INDEXED ORDER BY id",
    "SELECT id, used FROM usage NOT INDEXED ORDER BY id DESC",
    "SELECT id, 0 FROM artifacts NOT INDEXED ORDER BY id",
    "SELECT id, 0 FROM artifacts NOT INDEXED ORDER BY id DESC",
    "SELECT id, 0 FROM artifacts INDEXED BY artifacts_by_common ORDER BY common",
    "SELECT id, 0 FROM artifacts INDEXED BY artifacts_by_common ORDER BY common DESC",
};

class Salvager {
 public:
  Salvager(Connection& from, Connection& to, steady_clock::time_point deadline)
      : from_(from), to_(to), deadline_(deadline) {}

  Salvage run() {
    for (const char* list : kLists) take_listed(list);
    end_batch();
    const bool texts = take_texts();
    return {saved_, complete_ && !stopped_, texts};
  }

 private:
  /// Takes the records of a list, but for those that an earlier one had.
  void take_listed(const char* list) {
    Query query(from_, list);
    while (may_go_on()) {
      const auto found = query.step();
      if (!found) complete_ = false;
      if (!found || !*found) return;
      const int64_t id = query.integer(0);
      if (tried_.insert(id).second) take(id, query.integer(1));
    }
  }

  void take(int64_t id, int64_t used) {
    const auto row = read_row(from_, id);
    if (row && !*row) return;
    if (row && is_intact((**row).record)) return write((**row).record, used);
    complete_ = false;
  }

  void write(const StoredRecord& record, int64_t used) {
    if (!batch_) {
      auto begun = Transaction::begin(to_);
      if (!begun) return stop();
      batch_.emplace(std::move(*begun));
    }
    const auto inserted = restore_row(to_, record, used < 0 || used > kMostUses ? 0 : used);
    if (!inserted) return stop();
    pending_ += *inserted;
    if (pending_ >= kRowsPerTransaction) end_batch();
  }

  /// Takes what completes the keys of the records, however late it is, or nobody would find those;
  /// false: not all of it. A text that is lost is put right by the next record that is stored with
  /// it; until then, those that need it are not found.
  bool take_texts() {
    const auto missing = read_missing_texts(to_);
    auto begun = Transaction::begin(to_);
    if (!missing || !begun) return false;
    bool all = true;
    for (const Digest& digest : *missing) {
      const auto text = find_text(digest);
      all = text && all;
      if (text && !write_text(to_, *text)) return false;
    }
    return begun->commit() && all;
  }

  std::optional<StoredText> find_text(const Digest& digest) {
    for (const auto& read : {read_text, scan_for_text}) {
      const auto text = read(from_, digest);
      if (text && *text && decode_text(**text)) return *text;
    }
    return std::nullopt;
  }

  bool may_go_on() {
    if (steady_clock::now() >= deadline_) stopped_ = true;
    return !stopped_;
  }

  void end_batch() {
    if (batch_ && batch_->commit()) saved_ += pending_;
    batch_.reset();
    pending_ = 0;
  }

  void stop() { stopped_ = true; }

  Connection& from_;
  Connection& to_;
  const steady_clock::time_point deadline_;
  std::unordered_set<int64_t> tried_;
  std::optional<Transaction> batch_;
  int64_t pending_ = 0, saved_ = 0;
  bool complete_ = true, stopped_ = false;
};

}  // namespace

Salvage salvage(Connection& from, Connection& to, steady_clock::time_point deadline) {
  return Salvager(from, to, deadline).run();
}

}  // namespace laya::cache
