// The artifact store: bytes in, bytes out, in one SQLite file under one directory.
//
// A store problem is never the caller's problem: opening always yields a Store, find() turns every
// fault into a miss and put() into "not stored"; each is counted and the first of a kind is logged.
// The store knows nothing of kernels, compilers or models: it compares strings.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/bundle.h"
#include "cache/key.h"
#include "cache/log.h"
#include "cache/result.h"

namespace laya::cache {

struct StoreOptions {
  std::filesystem::path directory;       ///< where the database lives; empty: keep nothing
  int64_t max_bytes = int64_t{2} << 30;  ///< size cap in bytes; least recently used goes first
  std::chrono::milliseconds busy_timeout{
      250};  ///< how long a call waits for another process's lock
  std::chrono::milliseconds build_wait{
      60'000};  ///< how long await_turn() waits for another process that builds the same
  LogFn log;
};

/// What is stored under a key, once per producer.
struct Record {
  std::string
      producer;  ///< identity of what made the artifact (a compiler's build id); compared only
  std::string artifact;  ///< the bytes
  std::string metadata;  ///< small text beside the artifact; the store does not read it
};

/// Counters of one Store since it was opened.
struct StoreStats {
  int64_t hits = 0;
  int64_t misses = 0;   ///< every find() that returned nothing, whatever the reason
  int64_t waits = 0;    ///< records that another process built while await_turn() waited
  int64_t stores = 0;   ///< records written
  int64_t damaged = 0;  ///< records whose checksum failed, and databases moved aside
  int64_t busy = 0;     ///< calls given up because another process held the lock
  int64_t errors = 0;   ///< all other faults: I/O, full disk, read-only
  int64_t evicted = 0;  ///< records removed to stay under max_bytes
};

/// The right to build what a key stands for while others wait; given back when destroyed, or by the
/// system when the process dies. Must not outlive its Store.
class BuildClaim {
 public:
  virtual ~BuildClaim() = default;
};

/// What await_turn() returns: a record that somebody else has stored meanwhile, or a claim, or
/// neither where there is nothing to wait for or with.
struct BuildTurn {
  std::optional<Record> record;
  std::unique_ptr<BuildClaim> claim;
};

/// One line of `list()`.
struct EntryInfo {
  int64_t id = 0;      ///< of the record in its store, by which it is removed or exported
  std::string digest;  ///< 32 hexadecimal digits
  std::string producer;
  std::string metadata;
  int64_t artifact_bytes = 0;  ///< size of the artifact as it is handed out
  int64_t stored_bytes = 0;    ///< bytes of the record in the database, without its common text
  int64_t hits = 0;            ///< as of the last batch of recency updates
  int64_t created_at = 0;      ///< seconds since 1970, for people only; never decides validity
  std::vector<KeyField> key;   ///< filled by show() only
  std::string artifact;        ///< filled by show() only
};

enum class StoreMode { kReadWrite, kReadOnly, kMemoryOnly };

/// Thread-safe. Several processes may use one directory at once. May be used on both sides of a
/// fork(): parent and child each go on with connections of their own. (Where a process was made by
/// a bare clone(), which runs no fork handlers, the child keeps nothing.) The log callback is
/// called without a lock held.
class Store {
 public:
  /// Opens or creates the store. Never fails: without a usable directory the store is read-only or
  /// keeps nothing, and says why in `reason()` and one warning.
  static std::unique_ptr<Store> open(StoreOptions options);

  virtual ~Store() = default;

  /// The record for `key` made by `producer`, or, where `producer` is empty, by anyone: the one
  /// stored or used last, as far as uses have been counted. The key text and a checksum over the
  /// whole record are verified.
  virtual std::optional<Record> find(const Key& key, std::string_view producer) = 0;

  /// To be called after a find() that missed and before building. If another process (or another
  /// Store of this one) is about to build the same, waits for it up to StoreOptions::build_wait and
  /// returns what it stored. Else, or if it failed or died, the caller builds, and keeps the claim
  /// until it has put() the record. Calls for different keys never wait for each other. Only saves
  /// work: without locks (a read-only directory, a file system without them, too long a wait) it
  /// returns nothing and the caller builds all the same.
  virtual BuildTurn await_turn(const Key& key, std::string_view producer) = 0;

  /// Stores or replaces one record in one short transaction. False: not stored (and counted).
  virtual bool put(const Key& key, const Record& record) = 0;

  /// Removes a record that turned out to be unusable; an absent one is fine.
  virtual void drop(const Key& key, std::string_view producer) = 0;

  /// Writes pending recency and hit counts. Also done with every put(), in large batches and on
  /// destruction. Worth a call when a process has found what it needs: it may be killed later.
  virtual void flush() = 0;

  // --- Maintenance. These report their errors (kStoreError, kBadInput), since a person asked. ---

  /// All records, most recently used first.
  virtual Result<std::vector<EntryInfo>> list() = 0;
  /// Every record whose digest begins with `digest_prefix` (at least 4 hexadecimal digits), with
  /// its key fields.
  virtual Result<std::vector<EntryInfo>> show(std::string_view digest_prefix) = 0;
  /// Checks every record; returns the digests of damaged ones, which are removed if `repair`.
  virtual Result<std::vector<std::string>> verify(bool repair) = 0;
  /// Removes the records of `entries` that are still there and gives their space back to the disk;
  /// returns how many there were.
  virtual Result<int64_t> remove(const std::vector<EntryInfo>& entries) = 0;
  /// Removes the least recently used records until at most `bytes` are left; as remove().
  virtual Result<int64_t> shrink(int64_t bytes) = 0;
  /// Removes every record; returns how many there were.
  virtual Result<int64_t> clear() = 0;
  /// Writes the records of `entries` to the bundle `file`, which is replaced if it exists; `notes`
  /// go into its manifest. The same records and notes make the same bytes. kStoreError: a record is
  /// damaged, or the file cannot be written; then nothing is left of it.
  virtual Result<BundleManifest> export_bundle(const std::filesystem::path& file,
                                               const std::vector<EntryInfo>& entries,
                                               std::vector<KeyField> notes) = 0;
  /// Checks all of a bundle (errors as of check_bundle()), then adds what is not here yet in one
  /// transaction: all of that or, after an error, nothing.
  virtual Result<ImportReport> import_bundle(const std::filesystem::path& file) = 0;

  /// Bytes of all records and the common texts of their keys, as counted against max_bytes; 0 where
  /// nothing is kept.
  virtual Result<int64_t> stored_bytes() = 0;

  virtual StoreStats stats() const = 0;
  /// As it was found when the store was opened; later faults show in stats() only.
  virtual StoreMode mode() const = 0;
  /// Why the mode is not kReadWrite; empty if it is.
  virtual const std::string& reason() const = 0;
  virtual const StoreOptions& options() const = 0;
};

}  // namespace laya::cache
