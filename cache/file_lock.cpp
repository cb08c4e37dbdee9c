// flock() with a bounded wait.
#include "cache/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace laya::cache {
namespace {

tl::unexpected<Failure> lock_failure(const std::filesystem::path& file, int error) {
  return fail(error == EWOULDBLOCK ? Fault::kBusy : Fault::kOther,
              "lock " + file.string() + ": " + std::generic_category().message(error));
}

}  // namespace

Attempt<FileLock> FileLock::acquire(const std::filesystem::path& file,
                                    std::chrono::milliseconds timeout) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return lock_failure(file, errno);
  FileLock lock(fd);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  // flock() has no timeout of its own, and an alarm would be the host program's.
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const bool may_wait = errno == EWOULDBLOCK || errno == EINTR;
    if (!may_wait || std::chrono::steady_clock::now() >= deadline) return lock_failure(file, errno);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace laya::cache
