// Reading of caches that belong to nobody here.
#include "cache/layers.h"

#include <atomic>
#include <mutex>
#include <system_error>
#include <utility>

#include "cache/codec.h"
#include "cache/common_texts.h"
#include "cache/database.h"
#include "cache/fork_guard.h"
#include "cache/result.h"
#include "cache/rows.h"

namespace laya::cache {

class Layers::Layer final : private ForkAware {
 public:
  Layer(std::filesystem::path path, LogFn log) : path_(std::move(path)), log_(std::move(log)) {
    watch_forks(*this);
  }
  ~Layer() { unwatch_forks(*this); }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  std::optional<Record> find(const Key& key, std::string_view producer) {
    auto found = query([&](Connection& connection) -> Attempt<std::optional<Entry>> {
      LAYA_ASSIGN(auto row, read_row(connection, key.digest, producer));
      return texts_.complete(connection, std::move(row));
    });
    if (!found || !*found) return std::nullopt;
    Entry& entry = **found;
    if (!entry.common || !is_intact(entry.row.record)) {
      warn_once("record " + key.digest.hex() + " is damaged");
      return std::nullopt;
    }
    if (!entry.has_key_text(key.text)) return std::nullopt;
    return decode(std::move(entry.row.record));
  }

  Info describe() {
    const auto entries = query([](Connection& connection) {
      return connection.integer("SELECT count(*) FROM artifacts");
    });
    return {path_, entries ? "" : entries.error().message, entries.value_or(0)};
  }

 private:
  /// Runs `work` on the connection, which is opened first if need be; what fails is warned of once.
  template <class Work>
  auto query(const Work& work) -> decltype(work(std::declval<Connection&>())) {
    Attempt<void> opened;
    decltype(work(std::declval<Connection&>())) result = fail(Fault::kOther, "not run");
    {
      const std::lock_guard lock(mutex_);
      opened = ensure_open();
      if (opened) result = work(connection_);
    }
    if (!opened) result = tl::make_unexpected(opened.error());
    if (!result) warn_once(result.error().message);
    return result;
  }

  Attempt<void> ensure_open() {
    if (connection_) return {};
    if (!failure_.message.empty()) return tl::make_unexpected(failure_);
    auto opened = open_layer(path_);
    if (!opened) {
      failure_ = opened.error();  // For good: a layer does not change.
      return tl::make_unexpected(failure_);
    }
    connection_ = *std::move(opened);
    return {};
  }

  void warn_once(const std::string& message) {
    if (!warned_.exchange(true) && log_) {
      log_(LogLevel::kWarning, "cache layer " + path_.string() + ": " + message);
    }
  }

  void before_fork() override {
    mutex_.lock();
    connection_ = Connection();
  }
  void after_fork(bool /*in_child*/) override { mutex_.unlock(); }

  const std::filesystem::path path_;
  const LogFn log_;
  std::atomic<bool> warned_ = false;
  std::mutex mutex_;  ///< guards connection_, texts_ and failure_
  Connection connection_;
  CommonTexts texts_;
  Failure failure_;
};

Layers::Layers(const std::vector<std::filesystem::path>& paths, const LogFn& log) {
  for (const auto& path : paths) layers_.push_back(std::make_unique<Layer>(path, log));
}

Layers::~Layers() = default;
Layers::Layers(Layers&&) noexcept = default;
Layers& Layers::operator=(Layers&&) noexcept = default;

std::optional<Record> Layers::find(const Key& key, std::string_view producer) {
  for (const auto& layer : layers_) {
    if (auto record = layer->find(key, producer)) return record;
  }
  return std::nullopt;
}

std::vector<Layers::Info> Layers::describe() {
  std::vector<Info> infos;
  infos.reserve(layers_.size());
  for (const auto& layer : layers_) infos.push_back(layer->describe());
  return infos;
}

}  // namespace laya::cache
