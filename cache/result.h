// Error and Result<T>: how every folder of this project reports failure.
// Nothing throws across a folder border, nothing prints and nothing aborts.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace laya {

/// Whose fault it is, so that a caller knows what can be done about it.
enum class ErrorKind {
  kBadSpec,        ///< the kernel spec is wrong: unknown template, missing or illegal parameter
  kBadInput,       ///< data from outside is wrong: a file, a row of tokens, a command line value
  kCompileFailed,  ///< the template does not compile; `detail` holds the compiler's whole log
  kNotCached,      ///< compiling is switched off and no stored artifact fits
  kUnavailable,    ///< something this machine lacks: a driver, a GPU, a compiler
  kDeviceError,    ///< the driver refused; the message holds its error name and number
  kStoreError,     ///< the artifact store failed; never reaches someone who asks for a kernel
  kInternal,       ///< a defect of this library
};

/// "bad-spec", "compile-failed", ...
const char* to_string(ErrorKind kind);

/// A failure. `message` is one line without a final period that names what is wrong, where, and
/// what to do about it; `detail` may hold many lines of evidence (a compiler log).
struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  std::string detail;

  /// "kind: message", then the detail on lines of its own.
  std::string to_string() const;
};

template <class T>
using Result = tl::expected<T, Error>;

/// Builds the failed side of any Result.
inline tl::unexpected<Error> fail(ErrorKind kind, std::string message, std::string detail = {}) {
  return tl::make_unexpected(Error{kind, std::move(message), std::move(detail)});
}

}  // namespace laya

#define LAYA_CONCAT_INNER(a, b) a##b
#define LAYA_CONCAT(a, b) LAYA_CONCAT_INNER(a, b)

/// Returns the error of `expr` (a Result) from the enclosing function, if it has one.
#define LAYA_TRY(expr) LAYA_TRY_INNER(expr, LAYA_CONCAT(laya_result_, __LINE__))
#define LAYA_TRY_INNER(expr, tmp)                           \
  do {                                                      \
    if (auto tmp = (expr); !tmp) {                          \
      return ::tl::make_unexpected(std::move(tmp).error()); \
    }                                                       \
  } while (false)

/// `LAYA_ASSIGN(auto x, f())`: x is the value of f(), or f()'s error is returned.
#define LAYA_ASSIGN(decl, expr) LAYA_ASSIGN_INNER(decl, expr, LAYA_CONCAT(laya_result_, __LINE__))
#define LAYA_ASSIGN_INNER(decl, expr, tmp)                        \
  auto tmp = (expr);                                              \
  if (!tmp) return ::tl::make_unexpected(std::move(tmp).error()); \
  decl = *std::move(tmp)
