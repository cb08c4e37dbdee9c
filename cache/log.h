// The log callback that every library of this project takes. Libraries never print.
#pragma once

#include <functional>
#include <string_view>

namespace laya {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

/// Receives one line without a newline. May be called from any thread, also from several at once.
/// An empty function means: stay silent.
using LogFn = std::function<void(LogLevel, std::string_view)>;

}  // namespace laya
