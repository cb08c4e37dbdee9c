#include "tools/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tools/console.h"

namespace laya::tools {

Progress::Progress(std::string what, int64_t total)
    : what_(std::move(what)),
      total_(std::max<int64_t>(total, 1)),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      started_(Clock::now()),
      shown_(started_) {}

Progress::~Progress() {
  if (is_terminal_) std::fputs("\r\33[K", stderr);
}

void Progress::update(int64_t done, std::string_view item) {
  const Clock::time_point now = Clock::now();
  if (!is_terminal_ && done < total_ && now - shown_ < std::chrono::seconds(1)) return;
  shown_ = now;

  const double elapsed = std::chrono::duration<double>(now - started_).count();
  std::string line = what_ + " " + std::to_string(done * 100 / total_) + " %";
  if (done > 0 && done < total_) {
    const double left = elapsed * static_cast<double>(total_ - done) / static_cast<double>(done);
    line += ", about " + format_fixed(std::max(left, 1.0), 0) + " s left";
  } else {
    line += ", " + format_seconds(elapsed);
  }
  // A terminal line must not wrap, or it cannot be renewed.
  if (!item.empty()) line += "  " + std::string(item.substr(0, 60));
  if (is_terminal_) {
    std::fprintf(stderr, "\r\33[K%s", line.c_str());
  } else {
    note(line);
  }
}

}  // namespace laya::tools
