// Open file description locks with a bounded wait.
#include "cache/key_locks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace laya::cache {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr microseconds kFirstPause{200};
constexpr microseconds kLongestPause{5'000};

tl::unexpected<Failure> lock_failure(const std::filesystem::path& file, int error) {
  const bool busy = error == EAGAIN || error == EACCES;
  return fail(busy ? Fault::kBusy : Fault::kOther,
              "lock a key in " + file.string() + ": " + std::generic_category().message(error));
}

/// 62 bits: offset and length together must fit a signed number.
off_t offset_of(const Digest& key, std::string_view producer) {
  uint64_t offset = 0;
  std::memcpy(&offset, key.bytes.data(), sizeof offset);
  return static_cast<off_t>((offset ^ checksum_of(producer)) >> 2);
}

/// Locks (F_WRLCK) or unlocks (F_UNLCK) one byte without waiting. Returns errno, or 0.
int set_lock(int fd, short type, off_t offset) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = offset;
  range.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &range) == 0 ? 0 : errno;
}

}  // namespace

/// Releases when destroyed, unless this is a forked child's copy.
class KeyLocks::Claim final : public BuildClaim {
 public:
  Claim(KeyLocks& locks, int fd) : locks_(locks), fd_(fd) {}
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() override { locks_.close(fd_); }

 private:
  KeyLocks& locks_;
  const int fd_;
};

KeyLocks::KeyLocks(std::filesystem::path file) : file_(std::move(file)) {
  watch_forks(*this);
}

KeyLocks::~KeyLocks() {
  unwatch_forks(*this);
}

Attempt<int> KeyLocks::open() {
  const std::lock_guard lock(mutex_);
  const int fd = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return fail(Fault::kOther,
                "open " + file_.string() + ": " + std::generic_category().message(errno));
  }
  open_.push_back(fd);
  return fd;
}

void KeyLocks::close(int fd) {
  const std::lock_guard lock(mutex_);
  const auto at = std::find(open_.begin(), open_.end(), fd);
  if (at == open_.end()) return;  // A forked child's: closed at the fork.
  open_.erase(at);
  // Unlocked first: a child between fork() and its handler still shares the description.
  struct flock all = {};
  all.l_type = F_UNLCK;
  all.l_whence = SEEK_SET;
  (void)::fcntl(fd, F_OFD_SETLK, &all);
  ::close(fd);
}

Attempt<std::unique_ptr<BuildClaim>> KeyLocks::acquire(const Digest& key, std::string_view producer,
                                                       std::chrono::milliseconds timeout) {
  const auto opened = open();
  if (!opened) return tl::make_unexpected(opened.error());
  auto claim = std::make_unique<Claim>(*this, *opened);
  const off_t offset = offset_of(key, producer);
  const auto deadline = steady_clock::now() + timeout;
  // F_OFD_SETLKW waits without end, and an alarm would be the host program's.
  for (microseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const int error = set_lock(*opened, F_WRLCK, offset);
    if (error == 0) return claim;
    const bool may_wait = error == EAGAIN || error == EACCES || error == EINTR;
    if (!may_wait || steady_clock::now() >= deadline) return lock_failure(file_, error);
    std::this_thread::sleep_for(pause);
  }
}

void KeyLocks::before_fork() {
  mutex_.lock();
}

void KeyLocks::after_fork(bool in_child) {
  if (in_child) {
    // Without unlocking: the parent holds the same description.
    for (const int fd : open_) ::close(fd);
    open_.clear();
  }
  mutex_.unlock();
}

}  // namespace laya::cache
