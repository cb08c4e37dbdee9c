// Reading common texts, and forgetting them when they become too many.
#include "cache/common_texts.h"

#include <utility>

#include "cache/result.h"

namespace laya::cache {
namespace {

// An engine's kernels have some dozens of texts of 10 to 50 KB.
constexpr size_t kMaxBytes = 16 << 20;

}  // namespace

Attempt<std::optional<Entry>> CommonTexts::complete(Connection& connection,
                                                    std::optional<Row> row) {
  if (!row) return std::nullopt;
  LAYA_ASSIGN(auto common, get(connection, row->record.common));
  if (!common) {
    // Another process may have removed both since the row was read: that is no damage.
    LAYA_ASSIGN(row, read_row(connection, row->id));
    if (!row) return std::nullopt;
  }
  return Entry{*std::move(row), std::move(common)};
}

Attempt<std::shared_ptr<const std::string>> CommonTexts::get(Connection& connection,
                                                             const Digest& digest) {
  if (const auto known = texts_.find(digest); known != texts_.end()) return known->second;
  std::optional<std::string> text;
  if (digest == digest_of("")) {
    text.emplace();  // Not stored.
  } else {
    LAYA_ASSIGN(const auto stored, read_text(connection, digest));
    if (stored) text = decode_text(*stored);
  }
  if (!text) return nullptr;
  if (bytes_ + text->size() > kMaxBytes) {
    texts_.clear();
    bytes_ = 0;
  }
  bytes_ += text->size();
  return texts_.emplace(digest, std::make_shared<const std::string>(*std::move(text)))
      .first->second;
}

}  // namespace laya::cache
