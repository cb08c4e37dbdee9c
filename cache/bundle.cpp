// Writing, checking and merging of bundles.
#include "cache/bundle.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <set>
#include <system_error>
#include <utility>

#include "cache/codec.h"
#include "cache/common_texts.h"
#include "cache/database.h"
#include "cache/rows.h"
#include "cache/sqlite_store.h"

namespace laya::cache {
namespace {

constexpr int64_t kBundleFormat = 2;

tl::unexpected<Error> bad(const std::filesystem::path& file, const std::string& what) {
  return fail(ErrorKind::kBadInput, file.string() + ": " + what);
}

/// The manifest's fields but for the seal, and the seal over them.
class Seal {
 public:
  void add(const StoredRecord& record) {
    checksums_.append(reinterpret_cast<const char*>(record.checksum.bytes.data()),
                      record.checksum.bytes.size());
    bytes_ += stored_bytes(record);
    ++entries_;
    producers_.insert(record.producer);
  }

  /// What the records added so far allow a manifest to say.
  BundleManifest manifest(std::vector<KeyField> notes) const {
    BundleManifest manifest{
        entries_, bytes_, {producers_.begin(), producers_.end()}, std::move(notes), {}};
    manifest.seal = digest_of(text_of(manifest) + checksums_).hex();
    return manifest;
  }

  static std::string text_of(const BundleManifest& manifest) {
    KeyBuilder text;
    text.field("bundle", kBundleFormat);
    text.field("entries", manifest.entries).field("bytes", manifest.bytes);
    for (const std::string& producer : manifest.producers) text.field("producer", producer);
    for (const KeyField& note : manifest.notes) text.field("note." + note.tag, note.value);
    return std::move(text).finish().text;
  }

 private:
  std::string checksums_;
  int64_t entries_ = 0, bytes_ = 0;
  std::set<std::string> producers_;
};

/// A file under a name of its own until keep() gives it the wanted one; removed otherwise.
class NewFile {
 public:
  static Result<NewFile> create(std::filesystem::path target) {
    std::error_code error;
    auto directory = std::filesystem::absolute(target, error).parent_path();
    directory = std::filesystem::canonical(directory, error);
    if (error) return fail(ErrorKind::kStoreError, target.string() + ": " + error.message());
    target = directory / target.filename();
    NewFile file(target, target.string() + ".new-" + std::to_string(::getpid()));
    // At most 0644: a layer that its group could write to would be refused.
    const int fd = ::open(file.path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return file.failure(errno);
    ::close(fd);
    return file;
  }

  NewFile(NewFile&& other) noexcept
      : target_(std::move(other.target_)), path_(std::exchange(other.path_, {})) {}
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  const std::filesystem::path& path() const { return path_; }

  Result<void> keep() {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    const bool synced = fd >= 0 && ::fsync(fd) == 0;
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (!synced) return failure(error);
    if (std::rename(path_.c_str(), target_.c_str()) != 0) return failure(errno);
    path_.clear();
    return {};
  }

 private:
  NewFile(std::filesystem::path target, std::filesystem::path path)
      : target_(std::move(target)), path_(std::move(path)) {}

  tl::unexpected<Error> failure(int error) const {
    return fail(ErrorKind::kStoreError,
                "write " + target_.string() + ": " + std::generic_category().message(error));
  }

  std::filesystem::path target_, path_;
};

Attempt<void> write_manifest(Connection& connection, const BundleManifest& manifest) {
  LAYA_TRY(
      connection.execute("CREATE TABLE manifest(text BLOB NOT NULL, seal BLOB NOT NULL) STRICT"));
  const std::string text = Seal::text_of(manifest);
  return Query(connection, "INSERT INTO manifest VALUES(?1, ?2)", Blob{text}, Blob{manifest.seal})
      .run();
}

Result<BundleManifest> parse_manifest(const std::filesystem::path& file, std::string_view text,
                                      std::string_view seal) {
  const auto fields = parse_key(text);
  if (!fields || fields->empty() || fields->front().tag != "bundle") {
    return bad(file, "the manifest cannot be read");
  }
  if (fields->front().value != std::to_string(kBundleFormat)) {
    return bad(file, "is a bundle of format " + fields->front().value + "; this program reads " +
                         std::to_string(kBundleFormat));
  }
  BundleManifest manifest;
  manifest.seal = seal;
  for (const KeyField& field : *fields) {
    constexpr std::string_view kNote = "note.";
    if (field.tag == "producer") manifest.producers.push_back(field.value);
    if (field.tag.starts_with(kNote)) {
      manifest.notes.push_back({field.tag.substr(kNote.size()), field.value});
    }
  }
  return manifest;
}

Result<BundleManifest> read_manifest(const std::filesystem::path& file, Connection& connection) {
  LAYA_ASSIGN(
      const int64_t tables,
      result_of(connection.integer(
          "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'manifest'")));
  if (tables == 0) return bad(file, "is a cache, not a bundle: it has no manifest");
  Query query(connection, "SELECT text, seal FROM manifest");
  LAYA_ASSIGN(const bool found, result_of(query.step()));
  if (!found) return bad(file, "the manifest is empty");
  return parse_manifest(file, query.blob(0), query.blob(1));
}

/// Checks everything; returns what the manifest says, which then is true.
Result<BundleManifest> read_bundle(const std::filesystem::path& file, Connection& connection) {
  LAYA_ASSIGN(const BundleManifest stated, read_manifest(file, connection));
  LAYA_ASSIGN(const bool sound, result_of(has_sound_structure(connection)));
  if (!sound) return bad(file, "has a damaged structure");
  LAYA_ASSIGN(const auto ids, result_of(read_ids(connection)));
  CommonTexts texts;
  Seal seal;
  for (const int64_t id : ids) {
    LAYA_ASSIGN(auto row, result_of(read_row(connection, id)));
    LAYA_ASSIGN(const auto entry, result_of(texts.complete(connection, std::move(row))));
    if (!entry || !entry->is_sound()) {
      return bad(file, "record " + (entry ? entry->row.record.digest.hex() : std::to_string(id)) +
                           " is damaged");
    }
    seal.add(entry->row.record);
  }
  BundleManifest found = seal.manifest(stated.notes);
  if (found.seal != stated.seal) {
    return bad(file, "the seal is broken: the records are not those it was made with");
  }
  return found;
}

/// Opens `file`, which a person named: what is no database of ours is wrong input.
Result<Connection> open_bundle(const std::filesystem::path& file) {
  auto connection = open_layer(file);
  if (connection) return *std::move(connection);
  const Failure& failure = connection.error();
  const bool unsafe_or_absent = failure.fault == Fault::kForeign || failure.fault == Fault::kOther;
  if (failure.fault == Fault::kOtherFormat) {
    return bad(file, "is no bundle of this version; if another one made it, export it again: " +
                         failure.message);
  }
  if (!unsafe_or_absent) return bad(file, "is no bundle: " + failure.message);
  return fail(ErrorKind::kStoreError, file.string() + ": " + failure.message);
}

/// Adds the records of `bundle` that `connection` lacks. One transaction.
Attempt<void> merge(Connection& connection, Connection& bundle, int64_t max_bytes,
                    ImportReport& report) {
  LAYA_ASSIGN(const auto ids, read_ids(bundle));
  LAYA_ASSIGN(Transaction transaction, Transaction::begin(connection));
  CommonTexts texts;
  for (const int64_t id : ids) {
    LAYA_ASSIGN(auto row, read_row(bundle, id));
    LAYA_ASSIGN(const auto entry, texts.complete(bundle, std::move(row)));
    // Checked once more: what was checked before may have been another file.
    if (!entry || !entry->is_sound()) return fail(Fault::kOther, "the bundle has changed");
    const StoredRecord& record = entry->row.record;
    LAYA_ASSIGN(const bool known, has_row(connection, id));
    LAYA_ASSIGN(const int64_t bytes, total_bytes(connection));
    const int64_t size = stored_bytes(record) + static_cast<int64_t>(entry->common->size());
    if (known) {
      ++report.kept;
    } else if (bytes + size > max_bytes) {
      ++report.refused;
    } else {
      LAYA_TRY(write_row(connection, record, *entry->common, now()));
      ++report.added;
    }
  }
  return transaction.commit();
}

}  // namespace

Result<BundleManifest> check_bundle(const std::filesystem::path& file) {
  LAYA_ASSIGN(Connection connection, open_bundle(file));
  return read_bundle(file, connection);
}

Result<BundleManifest> SqliteStore::export_bundle(const std::filesystem::path& file,
                                                  const std::vector<EntryInfo>& entries,
                                                  std::vector<KeyField> notes) {
  std::set<int64_t> ids;  // The same records make the same file, whatever their order here.
  for (const EntryInfo& entry : entries) ids.insert(entry.id);
  LAYA_ASSIGN(NewFile target, NewFile::create(file));
  LAYA_ASSIGN(Connection bundle, result_of(create_database(target.path())));
  LAYA_ASSIGN(Transaction transaction, result_of(Transaction::begin(bundle)));
  Seal seal;
  for (const int64_t id : ids) {
    LAYA_ASSIGN(
        const auto found,
        result_of(read_entry([&](Connection& connection) { return read_row(connection, id); })));
    if (!found) continue;  // Removed since.
    const StoredRecord& record = found->row.record;
    if (!found->is_sound()) {
      return fail(
          ErrorKind::kStoreError,
          "record " + record.digest.hex() + " is damaged; `laya cache verify --repair` removes it");
    }
    LAYA_TRY(result_of(write_row(bundle, record, *found->common, /*created_at=*/0)));
    seal.add(record);
  }
  BundleManifest manifest = seal.manifest(std::move(notes));
  LAYA_TRY(result_of(write_manifest(bundle, manifest)));
  LAYA_TRY(result_of(transaction.commit()));
  bundle = Connection();
  LAYA_TRY(target.keep());
  return manifest;
}

Result<ImportReport> SqliteStore::import_bundle(const std::filesystem::path& file) {
  if (place_.mode != StoreMode::kReadWrite) return fail(ErrorKind::kStoreError, place_.reason);
  LAYA_ASSIGN(Connection bundle, open_bundle(file));
  LAYA_ASSIGN(const BundleManifest manifest, read_bundle(file, bundle));
  ImportReport report;
  LAYA_TRY(result_of(attempt([&](Connection& connection) -> Attempt<void> {
    report = ImportReport{manifest, 0, 0, 0};
    return merge(connection, bundle, options_.max_bytes, report);
  })));
  counters_.stores += report.added;
  return report;
}

}  // namespace laya::cache
