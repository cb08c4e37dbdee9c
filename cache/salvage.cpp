// Down from the newest record to the first damage, then up from the oldest one and through it.
#include "cache/salvage.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cache/codec.h"
#include "cache/result.h"
#include "cache/rows.h"

namespace laya::cache {
namespace {

using std::chrono::steady_clock;

/// No id of ours is so large; one that damage has made larger would use up all ids.
constexpr int64_t kMaxId = int64_t{1} << 61;

/// Ids in a row that cannot be read before the rest is given up: a page that leads to others leads
/// to some thousand of them, most of which hold one or two records.
constexpr int64_t kMaxUnreadable = 1 << 13;

/// Records written by one transaction: what is written stays, should a later one fail.
constexpr int kRowsPerTransaction = 64;

class Salvager {
 public:
  Salvager(Connection& from, Connection& to, steady_clock::time_point deadline)
      : from_(from), to_(to), deadline_(deadline) {}

  Salvage run() {
    const int64_t top = walk_down(kMaxId);
    if (top > 0) walk_up(top == kMaxId ? greatest_id() : top);
    end_batch();
    const bool texts = take_texts();
    return {saved_, top == 0 && !stopped_, texts};
  }

 private:
  /// Takes all rows from `id` downwards; returns the id from which on nothing can be read, or 0.
  int64_t walk_down(int64_t id) {
    while (may_go_on()) {
      auto row = read_last_row(from_, id);
      if (row && !*row) return 0;
      if (!row || !is_usable(**row)) return id;
      id = (**row).id - 1;
      take(**row);
    }
    return id;
  }

  /// Takes all rows up to `top`, trying one id after the other where nothing can be read.
  void walk_up(int64_t top) {
    int64_t unreadable = 0;
    for (int64_t id = 1; id <= top && unreadable < kMaxUnreadable && may_go_on(); ++id) {
      auto row = read_first_row(from_, id);
      if (row && !*row) return;
      ++unreadable;
      if (!row || !is_usable(**row)) continue;
      unreadable = 0;
      id = (**row).id;
      take(**row);
    }
  }

  /// The id of a damaged row may be damaged too, so it says nothing about where to go on.
  static bool is_usable(const Row& row) { return row.id > 0 && is_intact(row.record); }

  /// From the two other places that know of it.
  int64_t greatest_id() {
    const auto given = from_.integer("SELECT seq FROM sqlite_sequence WHERE name = 'artifacts'");
    const auto used = from_.integer("SELECT coalesce(max(id), 0) FROM usage");
    const int64_t greatest = std::max(given.value_or(0), used.value_or(0));
    return greatest > 0 ? std::min(greatest, kMaxId) : kMaxId;
  }

  bool may_go_on() {
    if (steady_clock::now() >= deadline_) stopped_ = true;
    return !stopped_;
  }

  void take(const Row& row) {
    if (!batch_) {
      auto begun = Transaction::begin(to_);
      if (!begun) return stop();
      batch_.emplace(std::move(*begun));
    }
    const auto inserted = restore_row(to_, row);
    if (!inserted) return stop();
    pending_ += *inserted;
    if (pending_ >= kRowsPerTransaction) end_batch();
  }

  /// Takes what completes the keys of the records; false: not all of it. A text that is lost is put
  /// right by the next record that is stored with it; until then, those that need it are not found.
  bool take_texts() {
    const auto missing = read_missing_texts(to_);
    auto begun = Transaction::begin(to_);
    if (!missing || !begun) return false;
    bool all = true;
    for (const Digest& digest : *missing) {
      const auto text = may_go_on() ? find_text(digest) : std::nullopt;
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

  void end_batch() {
    if (batch_ && batch_->commit()) saved_ += pending_;
    batch_.reset();
    pending_ = 0;
  }

  void stop() { stopped_ = true; }

  Connection& from_;
  Connection& to_;
  const steady_clock::time_point deadline_;
  std::optional<Transaction> batch_;
  int64_t pending_ = 0, saved_ = 0;
  bool stopped_ = false;
};

}  // namespace

Salvage salvage(Connection& from, Connection& to, steady_clock::time_point deadline) {
  return Salvager(from, to, deadline).run();
}

}  // namespace laya::cache
