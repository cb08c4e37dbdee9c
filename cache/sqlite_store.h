// The Store over one SQLite file. Internal to cache/.
//
// One connection behind one mutex: a hit holds it for some ten microseconds, and a connection per
// thread would cost more to open than it could ever save. Packing, unpacking, checksums, waiting
// for other processes and logging all happen without the mutex.
#pragma once

#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "cache/codec.h"
#include "cache/common_texts.h"
#include "cache/database.h"
#include "cache/fault.h"
#include "cache/fork_guard.h"
#include "cache/key_locks.h"
#include "cache/rows.h"
#include "cache/sqlite.h"
#include "cache/store.h"

namespace laya::cache {

class SqliteStore final : public Store, private ForkAware {
 public:
  /// Where the database is and what may be done to it. Opens nothing yet.
  struct Place {
    std::filesystem::path file;  ///< absolute, without symbolic links
    JournalMode journal = JournalMode::kRollback;
    StoreMode mode = StoreMode::kReadWrite;
    std::string reason;
  };

  SqliteStore(StoreOptions options, Place place);
  ~SqliteStore() override;

  /// Opens the database, waiting for other processes as any call does. A Failure of kBusy is not
  /// final: every call tries again.
  Attempt<void> connect();

  std::optional<Record> find(const Key& key, std::string_view producer) override;
  BuildTurn await_turn(const Key& key, std::string_view producer) override;
  bool put(const Key& key, const Record& record) override;
  void drop(const Key& key, std::string_view producer) override;
  void flush() override;

  Result<std::vector<EntryInfo>> list() override;
  Result<std::vector<EntryInfo>> show(std::string_view digest_prefix) override;
  Result<std::vector<std::string>> verify(bool repair) override;
  Result<int64_t> remove(const std::vector<EntryInfo>& entries) override;
  Result<int64_t> shrink(int64_t bytes) override;
  Result<int64_t> clear() override;
  Result<BundleManifest> export_bundle(const std::filesystem::path& file,
                                       const std::vector<EntryInfo>& entries,
                                       std::vector<KeyField> notes) override;
  Result<ImportReport> import_bundle(const std::filesystem::path& file) override;
  Result<int64_t> stored_bytes() override;

  StoreStats stats() const override;
  StoreMode mode() const override { return place_.mode; }
  const std::string& reason() const override { return place_.reason; }
  const StoreOptions& options() const override { return options_; }

 private:
  struct Counters {
    std::atomic<int64_t> hits{0}, misses{0}, waits{0}, stores{0}, damaged{0}, busy{0}, errors{0},
        evicted{0};
  };

  using Work = std::function<Attempt<void>(Connection&)>;

  /// Runs `work` under the mutex, again and again while other processes hold a lock, for up to the
  /// busy timeout, and once more on the new database if the old one was damaged. So `work` may run
  /// more than once.
  Attempt<void> run(const Work& work);
  /// One go at it. `notice` is what should be logged once the mutex is free.
  Attempt<void> run_once(const Work& work, std::string& notice);
  /// run() for work that returns an Attempt of something.
  template <class Function>
  auto attempt(Function function) {
    std::invoke_result_t<Function&, Connection&> result = fail(Fault::kOther, "not run");
    const Attempt<void> done = run([&](Connection& connection) -> Attempt<void> {
      result = function(connection);
      if (!result) return tl::make_unexpected(result.error());
      return {};
    });
    if (!done) result = tl::make_unexpected(done.error());
    return result;
  }
  Attempt<void> ensure_connected();
  /// Replaces a damaged database by a new one. `notice` is set exactly if that was done.
  void recover(const FileIdentity& identity, std::string& notice);

  std::optional<Record> look_up(const Key& key, std::string_view producer);
  /// Reads one row with `read`, which returns an Attempt of one, and completes it.
  template <class Read>
  Attempt<std::optional<Entry>> read_entry(const Read& read) {
    return attempt([&](Connection& connection) -> Attempt<std::optional<Entry>> {
      LAYA_ASSIGN(auto row, read(connection));
      return texts_.complete(connection, std::move(row));
    });
  }
  /// `common` completes the key text of `record`.
  Attempt<int64_t> write(const StoredRecord& record, std::string_view common,
                         const std::vector<int64_t>& uses);
  Attempt<int64_t> write_once(const StoredRecord& record, std::string_view common,
                              const std::vector<int64_t>& uses);
  Attempt<void> make_room();
  Attempt<void> repair();
  Attempt<void> repair_structure();
  void give_back_space();
  /// How many bytes of records to keep, if there are too many for the cap or for the disk.
  Attempt<std::optional<int64_t>> eviction_target(Connection& connection, int64_t last_put) const;
  /// Evicts if need be, but not record `keep`.
  void trim(int64_t keep, int64_t last_put);
  void drop_damaged(const Row& row);
  void note_use(int64_t id);
  std::vector<int64_t> take_uses();
  /// As flush(), and brings hits and recency of all records up to date.
  void count_uses();

  void warn(const std::string& message) const;
  /// Counts a failure, and logs it if it is the first of its kind.
  void report(const Failure& failure);

  const StoreOptions options_;
  const Place place_;
  KeyLocks locks_;
  Counters counters_;
  std::array<std::atomic<bool>, kFaults> warned_{};

  std::mutex mutex_;  ///< guards connection_, texts_ and recovered_
  Connection connection_;
  CommonTexts texts_;
  bool recovered_ = false;  ///< a damaged database was put aside; once is enough for one process

  std::mutex uses_mutex_;
  std::vector<int64_t> uses_;  ///< ids of records that were hit, in order, not yet written down

  void before_fork() override;
  void after_fork(bool in_child) override;
};

}  // namespace laya::cache
