// Damage in every page of the database file, its write-ahead log and its shared memory: no answer
// is wrong, the store works on, and only those records are lost that the damage hit.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "tests/cache/fault_table.h"
#include "tests/cache/support.h"

namespace laya::cache {
namespace {

using test::FaultRow;
using test::key_of;
using test::options_for;
using test::RawDatabase;
using test::record_of;
using test::same;
using test::TempDirectory;

constexpr size_t kPageBytes = 16384;
constexpr uint32_t kRecords = 24;

/// Small records that share a page, some that fill most of one, some with overflow pages.
Record sample(uint32_t i) {
  constexpr std::array<size_t, 4> kSizes = {300, 9000, 40000, 700};
  return record_of(i, kSizes[i % kSizes.size()]);
}

Key sample_key(uint32_t i) {
  return key_of("k" + std::to_string(i));
}

/// A database with pages of every type, what is in which page, and a way to try damage on it.
class Specimen {
 public:
  Specimen() : temp_(TempDirectory::in_memory()) {
    {
      const auto store = Store::open(options_for(temp_));
      for (uint32_t i = 0; i < kRecords; ++i) REQUIRE(store->put(sample_key(i), sample(i)));
      for (uint32_t i = 100; i < 106; ++i) REQUIRE(store->put(sample_key(i), sample(i)));
      // Leaves free pages behind.
      for (uint32_t i = 100; i < 106; ++i) store->drop(sample_key(i), "maker-1");
    }
    good_ = test::read_file(temp_.database());
    REQUIRE(good_.size() % kPageBytes == 0);
    for (uint32_t i = 0; i < kRecords; ++i) locate(i);
    name_pages();
  }

  size_t pages() const { return good_.size() / kPageBytes; }
  const std::string& good() const { return good_; }
  /// What the page is for.
  const std::string& type_of(size_t page) const { return types_.at(page); }

  /// The records of which any part is in `page`, or which are reached through it.
  std::set<uint32_t> records_in(size_t page) const {
    if (type_of(page) == "interior page" || type_of(page) == "first page") return all();
    const auto found = contents_.find(page);
    return found == contents_.end() ? std::set<uint32_t>{} : found->second;
  }

  /// Opens a store over `bytes` in place of the database; counts into `row`.
  void try_bytes(const std::string& bytes, const std::set<uint32_t>& hit, FaultRow& row) const {
    for (const char* suffix : {"-wal", "-shm", ".damaged", ".damaged-wal"}) {
      std::filesystem::remove(temp_.database().string() + suffix);
    }
    test::write_file(temp_.database(), bytes);
    ++row.times;
    const auto store = Store::open(options_for(temp_));
    for (uint32_t i = 0; i < kRecords; ++i) {
      CAPTURE(i);

      const auto found = store->find(sample_key(i), "maker-1");
      if (found && !same(*found, sample(i))) ++row.wrong;
      if (found) continue;
      ++row.lost;
      CHECK(hit.count(i) == 1);
    }
    // Damage in the application id or the version: a file of somebody else's is left alone.
    if (store->mode() == StoreMode::kMemoryOnly) return;
    const Key key = key_of("new");
    bool works = store->put(key, record_of(9)) && store->find(key, "maker-1");
    if (!works) {
      // SQLite does not look at everything when it reads: some damage shows only to verify().
      CHECK(store->verify(true));
      works = store->put(key, record_of(9)) && store->find(key, "maker-1");
    }
    CHECK(works);
  }

  static std::set<uint32_t> all() {
    std::set<uint32_t> records;
    for (uint32_t i = 0; i < kRecords; ++i) records.insert(i);
    return records;
  }

 private:
  /// Looks for pieces of the record in the file: the digest is in the table and in an index.
  void locate(uint32_t i) {
    const Record record = sample(i);
    const Key key = sample_key(i);
    std::vector<std::string> pieces = {
        std::string(reinterpret_cast<const char*>(key.digest.bytes.data()), 16)};
    for (size_t at = 0; at + 24 <= record.artifact.size(); at += 64) {
      pieces.push_back(record.artifact.substr(at, 24));
    }
    for (const std::string& piece : pieces) {
      for (size_t at = good_.find(piece); at != std::string::npos; at = good_.find(piece, at + 1)) {
        contents_[at / kPageBytes].insert(i);
      }
    }
  }

  /// Calls `note` with the number, from 0, of each page that dbstat has where `condition` holds.
  template <class Note>
  void for_pages(const std::string& condition, const Note& note) const {
    const std::string list =
        RawDatabase(temp_.database())
            .text("SELECT group_concat(pageno) FROM dbstat WHERE " + condition);
    for (size_t at = 0; at < list.size(); at = std::min(list.find(',', at), list.size()) + 1) {
      note(std::stoul(list.substr(at)) - 1);
    }
  }

  void name_pages() {
    types_.assign(pages(), "free page");
    for (const auto& [sql_type, type] : {std::pair("internal", "interior page"),
                                         {"leaf", "leaf page"},
                                         {"overflow", "overflow page"}}) {
      for_pages(std::string("pagetype = '") + sql_type + "'",
                [&, type = type](size_t page) { types_.at(page) = type; });
    }
    types_[0] = "first page";
    // Without the text that they have in common, no record is found until one is stored anew.
    for_pages("name IN ('texts', 'sqlite_autoindex_texts_1')",
              [&](size_t page) { contents_[page] = all(); });
  }

  const TempDirectory temp_;
  std::string good_;
  std::map<size_t, std::set<uint32_t>> contents_;
  std::vector<std::string> types_;
};

/// Where to flip bits in a page: its head and cell pointers closely, the rest here and there.
std::vector<size_t> places_in(size_t page) {
  std::vector<size_t> places;
  for (const size_t at : {0, 1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 24, 40}) places.push_back(at);
  if (page == 0) {
    for (size_t at = 2; at < 140; at += 3) places.push_back(at);
  }
  uint32_t random = static_cast<uint32_t>(page) + 1;
  for (int i = 0; i < 6; ++i) {
    random = random * 1664525 + 1013904223;
    places.push_back(random % kPageBytes);
  }
  return places;
}

TEST_CASE("whatever bit of whatever page flips, no answer is wrong and only what was hit is lost") {
  const Specimen specimen;
  std::map<std::string, int> seen;
  for (size_t page = 0; page < specimen.pages(); ++page) {
    const std::string& type = specimen.type_of(page);
    CAPTURE(page);
    CAPTURE(type);
    ++seen[type];
    FaultRow& row = test::fault_row("G", "database: bit flipped in a " + type);
    for (const size_t place : places_in(page)) {
      CAPTURE(place);
      std::string bad = specimen.good();
      char& byte = bad[page * kPageBytes + place];
      byte = static_cast<char>(byte ^ (1 << place % 8));
      // Two records may come to share pages, so that the end of one is the end of both.
      const bool is_link = type == "overflow page" && place < 4;
      specimen.try_bytes(bad, is_link ? Specimen::all() : specimen.records_in(page), row);
    }
    CHECK(row.wrong == 0);
  }
  for (const char* type :
       {"first page", "interior page", "leaf page", "overflow page", "free page"}) {
    CAPTURE(type);
    CHECK(seen[type] > 0);
  }
}

TEST_CASE("a page of zeros or of noise costs the records in it") {
  const Specimen specimen;
  for (size_t page = 0; page < specimen.pages(); ++page) {
    CAPTURE(page);
    CAPTURE(specimen.type_of(page));
    FaultRow& row =
        test::fault_row("G", "database: whole " + specimen.type_of(page) + " overwritten");
    for (const std::string& noise :
         {std::string(kPageBytes, '\0'), test::bytes_of(kPageBytes, 7)}) {
      std::string bad = specimen.good();
      bad.replace(page * kPageBytes, kPageBytes, noise);
      specimen.try_bytes(bad, specimen.records_in(page), row);
    }
    CHECK(row.wrong == 0);
  }
}

TEST_CASE("a database cut off anywhere keeps the records in front of the cut") {
  const Specimen specimen;
  FaultRow& row = test::fault_row("G", "database: truncated in or before each page");
  for (size_t page = 1; page < specimen.pages(); ++page) {
    for (const size_t bytes : {page * kPageBytes, page * kPageBytes + 5000}) {
      CAPTURE(bytes);
      std::set<uint32_t> hit;
      for (size_t later = page; later < specimen.pages(); ++later) {
        hit.merge(specimen.records_in(later));
      }
      specimen.try_bytes(specimen.good().substr(0, bytes), hit, row);
    }
  }
  CHECK(row.wrong == 0);
}

}  // namespace
}  // namespace laya::cache
