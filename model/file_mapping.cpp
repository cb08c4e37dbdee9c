// FileMapping: the one place of this folder that calls mmap.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "model/safetensors.h"

namespace laya::model {
namespace {

tl::unexpected<Error> system_failure(const std::filesystem::path& path) {
  return fail(ErrorKind::kBadInput, "cannot read " + path.string() + ": " + std::strerror(errno));
}

Result<std::pair<const std::byte*, size_t>> map(int descriptor, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return system_failure(path);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorKind::kBadInput, path.string() + " is not a regular file");
  }
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return std::pair<const std::byte*, size_t>{nullptr, 0};
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) return system_failure(path);
  // Reading starts in the background while the kernels are being made ready.
  ::madvise(data, size, MADV_WILLNEED);
  return std::pair{static_cast<const std::byte*>(data), size};
}

}  // namespace

Result<FileMapping> FileMapping::open(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return system_failure(path);
  auto mapped = map(descriptor, path);
  ::close(descriptor);
  if (!mapped) return tl::make_unexpected(std::move(mapped).error());
  FileMapping mapping;
  mapping.data_ = mapped->first;
  mapping.size_ = mapped->second;
  return mapping;
}

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  FileMapping moved(std::move(other));
  swap(moved);
  return *this;
}

FileMapping::~FileMapping() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void FileMapping::swap(FileMapping& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

}  // namespace laya::model
