// Read-only caches that are searched after the user's own: a directory baked into an image, one
// that a team shares, or a bundle (cache/bundle.h).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/key.h"
#include "cache/log.h"
#include "cache/store.h"

namespace laya::cache {

/// Thread-safe; survives fork(). Nothing is ever written, locked or created; no file of a layer may
/// change while it is in use, or its records are taken for damaged ones.
/// A layer must belong to this user or root, and no one else may be able to write to it or to
/// replace it. One that is missing, foreign, damaged or unsafe is left out with one warning.
class Layers {
 public:
  /// `paths`: directories that hold a cache, or bundle files; searched in this order. Opens none of
  /// them before the first find().
  Layers(const std::vector<std::filesystem::path>& paths, const LogFn& log);
  ~Layers();
  Layers(Layers&&) noexcept;
  Layers& operator=(Layers&&) noexcept;

  /// As Store::find(), over the layers.
  std::optional<Record> find(const Key& key, std::string_view producer);

  /// One layer, for people.
  struct Info {
    std::filesystem::path path;  ///< as given
    std::string problem;         ///< why it is not used; empty if it is
    int64_t entries = 0;
  };
  std::vector<Info> describe();

 private:
  class Layer;

  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace laya::cache
