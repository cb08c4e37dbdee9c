// Why a kernel is not in the cache: the stored entry whose key is nearest, and what differs.
#pragma once

#include <string>

#include "cache/key.h"
#include "cache/store.h"

namespace laya::jit {

/// A sentence such as "the nearest of 12 entries, 3f2a..., differs in option 2: '-arch=sm_80' is
/// stored, '-arch=sm_90a' is wanted". Reads the whole store: for people, not for hot paths.
std::string explain_miss(cache::Store& store, const cache::Key& wanted);

}  // namespace laya::jit
