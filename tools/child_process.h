// A forked process that computes numbers, for benchmarks of several processes.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>

#include "cache/result.h"

namespace laya::tools {

/// To be ended by finish() or kill(), once.
class ChildProcess {
 public:
  /// Runs `body`, which returns two numbers, in a forked process. kUnavailable: there can be no
  /// more processes or pipes.
  template <class Body>
  static Result<ChildProcess> start(Body body) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failure("pipe");
    const pid_t pid = ::fork();
    if (pid < 0) return failure("fork");
    if (pid == 0) {
      ::close(ends[0]);
      const std::array<double, 2> numbers = body();
      const bool sent = ::write(ends[1], numbers.data(), sizeof numbers) == sizeof numbers;
      ::_exit(sent ? 0 : 1);
    }
    ::close(ends[1]);
    return ChildProcess(pid, ends[0]);
  }

  /// Waits for the numbers. kInternal: the process died.
  Result<std::array<double, 2>> finish() const {
    std::array<double, 2> numbers{};
    const bool received = ::read(end_, numbers.data(), sizeof numbers) == sizeof numbers;
    ::close(end_);
    ::waitpid(pid_, nullptr, 0);
    if (!received) return fail(ErrorKind::kInternal, "a measuring process died");
    return numbers;
  }

  /// Ends the process at once, as a crash would.
  void kill() const {
    ::kill(pid_, SIGKILL);
    ::close(end_);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  ChildProcess(pid_t pid, int end) : pid_(pid), end_(end) {}

  static tl::unexpected<Error> failure(const char* what) {
    return fail(ErrorKind::kUnavailable,
                std::string(what) + ": " + std::generic_category().message(errno));
  }

  pid_t pid_;
  int end_;
};

}  // namespace laya::tools
