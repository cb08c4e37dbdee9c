// A Store that keeps nothing and still counts.
#include "cache/null_store.h"

#include <atomic>
#include <utility>

namespace laya::cache {
namespace {

class NullStore final : public Store {
 public:
  NullStore(StoreOptions options, std::string reason)
      : options_(std::move(options)), reason_(std::move(reason)) {}

  std::optional<Record> find(const Key&, std::string_view) override {
    ++misses_;
    return std::nullopt;
  }
  BuildTurn await_turn(const Key&, std::string_view) override { return {}; }
  bool put(const Key&, const Record&) override { return false; }
  void drop(const Key&, std::string_view) override {}
  void flush() override {}

  Result<std::vector<EntryInfo>> list() override { return std::vector<EntryInfo>{}; }
  Result<std::vector<EntryInfo>> show(std::string_view) override {
    return std::vector<EntryInfo>{};
  }
  Result<std::vector<std::string>> verify(bool) override { return std::vector<std::string>{}; }
  Result<int64_t> remove(const std::vector<EntryInfo>&) override { return 0; }
  Result<int64_t> shrink(int64_t) override { return 0; }
  Result<int64_t> clear() override { return 0; }
  Result<BundleManifest> export_bundle(const std::filesystem::path&, const std::vector<EntryInfo>&,
                                       std::vector<KeyField>) override {
    return fail(ErrorKind::kStoreError, reason_);
  }
  Result<ImportReport> import_bundle(const std::filesystem::path&) override {
    return fail(ErrorKind::kStoreError, reason_);
  }
  Result<int64_t> stored_bytes() override { return 0; }

  StoreStats stats() const override {
    StoreStats stats;
    stats.misses = misses_;
    return stats;
  }
  StoreMode mode() const override { return StoreMode::kMemoryOnly; }
  const std::string& reason() const override { return reason_; }
  const StoreOptions& options() const override { return options_; }

 private:
  const StoreOptions options_;
  const std::string reason_;
  std::atomic<int64_t> misses_{0};
};

}  // namespace

std::unique_ptr<Store> make_null_store(StoreOptions options, std::string reason) {
  return std::make_unique<NullStore>(std::move(options), std::move(reason));
}

}  // namespace laya::cache
