// The Store where there is no place to keep anything: every find() is a miss. Internal to cache/.
#pragma once

#include <memory>
#include <string>

#include "cache/store.h"

namespace laya::cache {

/// `reason` says why nothing is kept.
std::unique_ptr<Store> make_null_store(StoreOptions options, std::string reason);

}  // namespace laya::cache
