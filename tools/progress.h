// How far a long job is, on stderr: one line that renews itself with an estimate on a terminal,
// plain lines at most once a second elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace laya::tools {

/// Used by one thread.
class Progress {
 public:
  /// `what` such as "compiling"; `total` in whatever update() counts.
  Progress(std::string what, int64_t total);
  /// Clears the line of a terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` of the total are done; `item` is what was finished last.
  void update(int64_t done, std::string_view item);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  int64_t total_;
  bool is_terminal_;
  Clock::time_point started_;
  Clock::time_point shown_;  ///< of the last line on a pipe
};

}  // namespace laya::tools
