#include "cache/result.h"

namespace laya {

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kBadSpec: return "bad-spec";
    case ErrorKind::kBadInput: return "bad-input";
    case ErrorKind::kCompileFailed: return "compile-failed";
    case ErrorKind::kNotCached: return "not-cached";
    case ErrorKind::kUnavailable: return "unavailable";
    case ErrorKind::kDeviceError: return "device-error";
    case ErrorKind::kStoreError: return "store-error";
    case ErrorKind::kInternal: return "internal";
  }
  return "unknown";
}

std::string Error::to_string() const {
  std::string text = std::string(laya::to_string(kind)) + ": " + message;
  if (!detail.empty()) text += "\n" + detail;
  return text;
}

}  // namespace laya
