// Refuses source texts that NVRTC would not survive or would read wrongly. Templates come from
// applications, and a compiler that runs inside their process must not take it down.
#pragma once

#include "cache/result.h"
#include "jit/compiler.h"

namespace laya::jit::cuda {

/// kCompileFailed names the file, the line and what is wrong with it:
/// - more than 4 MiB of source and headers;
/// - a NUL or 0xFF byte, where NVRTC silently stops reading;
/// - parentheses, brackets or braces more than 1000 deep, which overflow its stack;
/// - an #include of a path outside of the headers given ("/etc/passwd", "../x.h", a macro).
Result<void> check_source(const CompileRequest& request);

}  // namespace laya::jit::cuda
