// Bundles: what is exported arrives, elsewhere too, and nothing of a damaged one does.
#include "cache/bundle.h"

#include <sys/stat.h>

#include <algorithm>

#include "cache/layers.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::key_of;
using test::options_for;
using test::RawDatabase;
using test::record_of;
using test::same;
using test::TempDirectory;

constexpr uint32_t kRecords = 6;
const std::vector<KeyField> kNotes = {{"target", "sm_90a"}, {"target", "sm_80"}};

void fill(Store& store) {
  for (uint32_t i = 0; i < kRecords; ++i) {
    Record record = record_of(i, i == 3 ? 300'000 : 5000);
    if (i == 5) record.producer = "maker-2";
    REQUIRE(store.put(key_of(std::to_string(i)), record));
  }
}

/// A bundle of all records in `directory`.
std::filesystem::path export_all(const TempDirectory& directory, const char* name = "bundle") {
  const TempDirectory source;
  const auto store = Store::open(options_for(source));
  fill(*store);
  const auto file = directory.path() / name;
  const auto manifest = store->export_bundle(file, *store->list(), kNotes);
  REQUIRE_MESSAGE(manifest, manifest.error().to_string());
  return file;
}

bool has_all(Store& store) {
  for (uint32_t i = 0; i < kRecords; ++i) {
    const auto found = store.find(key_of(std::to_string(i)), "");
    if (!found || found->artifact != record_of(i, i == 3 ? 300'000 : 5000).artifact) return false;
  }
  return true;
}

TEST_CASE("what is exported is found after an import elsewhere, and as a layer") {
  const TempDirectory temp, user("a b'ü日本?#%");
  const auto file = export_all(temp, "bündel ?#%'.laya");
  const auto store = Store::open(options_for(user));
  const auto report = store->import_bundle(file);
  REQUIRE_MESSAGE(report, report.error().to_string());
  CHECK(report->added == kRecords);
  CHECK(report->kept + report->refused == 0);
  CHECK(has_all(*store));
  CHECK(store->verify(false)->empty());
  Layers layers({file}, {});
  CHECK(same(*layers.find(key_of("2"), "maker-1"), record_of(2)));
}

TEST_CASE("a manifest says what is inside") {
  const TempDirectory temp;
  const auto manifest = check_bundle(export_all(temp));
  REQUIRE(manifest);
  CHECK(manifest->entries == kRecords);
  CHECK(manifest->bytes > 300'000);
  CHECK(manifest->producers == std::vector<std::string>{"maker-1", "maker-2"});
  CHECK(manifest->notes == kNotes);
  CHECK(manifest->seal.size() == 32);
}

TEST_CASE("the same records make the same bundle, byte for byte") {
  const TempDirectory temp;
  CHECK(test::read_file(export_all(temp, "one")) == test::read_file(export_all(temp, "two")));
}

TEST_CASE("a bundle is one file that others can read and not write") {
  const TempDirectory temp;
  const auto file = export_all(temp);
  struct stat info = {};
  REQUIRE(::stat(file.c_str(), &info) == 0);
  CHECK((info.st_mode & 07022) == 0);
  CHECK((info.st_mode & 0600) == 0600);
  const auto entries = std::filesystem::directory_iterator(temp.path());
  CHECK(std::distance(begin(entries), end(entries)) == 1);
}

TEST_CASE("only what is selected is exported, and an old bundle is replaced") {
  const TempDirectory temp, source;
  const auto file = export_all(temp);
  const auto store = Store::open(options_for(source));
  fill(*store);
  auto entries = *store->list();
  std::erase_if(entries, [](const EntryInfo& entry) { return entry.producer != "maker-2"; });
  REQUIRE(store->export_bundle(file, entries, {}));
  const auto manifest = check_bundle(file);
  REQUIRE(manifest);
  CHECK(manifest->entries == 1);
  CHECK(manifest->notes.empty());
  CHECK(store->export_bundle(file, {}, {})->entries == 0);
  CHECK(check_bundle(file));
}

TEST_CASE("an import keeps what the cache has and refuses what does not fit") {
  const TempDirectory temp, user, small;
  const auto file = export_all(temp);
  const auto store = Store::open(options_for(user));
  const Record own{"maker-1", "our own bytes", ""};
  REQUIRE(store->put(key_of("1"), own));
  auto report = store->import_bundle(file);
  REQUIRE(report);
  CHECK(report->added == kRecords - 1);
  CHECK(report->kept == 1);
  CHECK(same(*store->find(key_of("1"), "maker-1"), own));
  report = store->import_bundle(file);
  CHECK(report->added == 0);
  CHECK(report->kept == kRecords);

  StoreOptions options = options_for(small);
  options.max_bytes = 100'000;
  const auto little = Store::open(options);
  report = little->import_bundle(file);
  REQUIRE(report);
  CHECK(report->refused == 1);
  CHECK(report->added == kRecords - 1);
  CHECK(*little->stored_bytes() <= options.max_bytes);
}

TEST_CASE("of a bundle that is damaged anywhere nothing is imported") {
  const TempDirectory temp, user;
  const auto file = export_all(temp);
  const std::string whole = test::read_file(file);
  const auto store = Store::open(options_for(user));
  int refused = 0, harmless = 0;
  for (size_t at = 0; at < whole.size(); at += 499) {
    test::patch_file(file, at, std::string(1, static_cast<char>(whole[at] ^ 0x10)));
    const auto report = store->import_bundle(file);
    if (report) {
      // A byte that means nothing: unused space of a page, or a number in the file's head.
      CHECK(has_all(*store));
      REQUIRE(store->clear());
      ++harmless;
    } else {
      CHECK(report.error().message.find(file.string()) != std::string::npos);
      CHECK(store->list()->empty());
      ++refused;
    }
    test::patch_file(file, at, std::string(1, whole[at]));
  }
  CHECK(refused > harmless);
  for (const size_t size : {size_t{0}, size_t{10}, whole.size() / 2, whole.size() - 1}) {
    test::write_file(file, whole.substr(0, size));
    CHECK_FALSE(store->import_bundle(file));
    CHECK(store->list()->empty());
  }
}

TEST_CASE("a bundle from which a whole record was taken does not pass") {
  const TempDirectory temp;
  const auto file = export_all(temp);
  {
    RawDatabase(file).execute("DELETE FROM artifacts WHERE id = (SELECT min(id) FROM artifacts)");
  }
  const auto checked = check_bundle(file);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().kind == ErrorKind::kBadInput);
  CHECK(checked.error().message.find("seal is broken") != std::string::npos);
}

TEST_CASE("what is no bundle is refused and the message says why") {
  const TempDirectory temp, cache;
  const auto refused = [&](const std::filesystem::path& file, ErrorKind kind, const char* why) {
    const auto checked = check_bundle(file);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().kind == kind);
    CAPTURE(checked.error().message);
    CHECK(checked.error().message.find(why) != std::string::npos);
    CHECK(checked.error().message.find(file.string()) != std::string::npos);
  };
  refused(temp.path() / "gone", ErrorKind::kStoreError, "No such file");
  test::write_file(temp.path() / "text", "These are words, and no database at all.");
  refused(temp.path() / "text", ErrorKind::kBadInput, "not a database");
  REQUIRE(Store::open(options_for(cache))->put(key_of("a"), record_of(1)));
  refused(cache.database(), ErrorKind::kBadInput, "no manifest");
  test::write_file(temp.path() / "old", test::read_file(cache.database()));
  ::chmod((temp.path() / "old").c_str(), 0600);
  RawDatabase(temp.path() / "old").execute("PRAGMA user_version = 3");
  refused(temp.path() / "old", ErrorKind::kBadInput, "export it again");
  const auto file = export_all(temp);
  ::chmod(file.c_str(), 0666);
  refused(file, ErrorKind::kStoreError, "can be written by others");
  ::chmod(file.c_str(), 0644);
  {
    RawDatabase(file).execute(
        "UPDATE manifest SET text = CAST(replace(text, 'bundle:1:2', 'bundle:1:9') AS BLOB)");
  }
  refused(file, ErrorKind::kBadInput, "format 9");
}

TEST_CASE("an export that cannot be written or would carry damage leaves no file") {
  for (const std::string change :
       {"metadata = x'00'", "digest = zeroblob(16)", "producer = x'00'", "id = 5"}) {
    CAPTURE(change);
    const TempDirectory temp, source;
    const auto store = Store::open(options_for(source));
    fill(*store);
    const auto file = temp.path() / "bundle";
    CHECK_FALSE(store->export_bundle(temp.path() / "no" / "such", *store->list(), {}));
    RawDatabase(source.database())
        .execute("UPDATE artifacts SET " + change + " WHERE id = (SELECT max(id) FROM artifacts)");
    const auto damaged = store->export_bundle(file, *store->list(), {});
    REQUIRE_FALSE(damaged);
    CHECK(damaged.error().message.find("is damaged") != std::string::npos);
    CHECK(std::filesystem::is_empty(temp.path()));
    // What is listed can be removed, whatever it is.
    CHECK(*store->remove(*store->list()) == static_cast<int64_t>(store->stats().stores));
    CHECK(store->list()->empty());
  }
}

TEST_CASE("a bundle cannot be imported where nothing is kept") {
  const TempDirectory temp;
  const auto file = export_all(temp);
  CHECK(Store::open({})->import_bundle(file).error().kind == ErrorKind::kStoreError);
}

}  // namespace
}  // namespace laya::cache
