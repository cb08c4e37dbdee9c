#include "jit/device.h"

namespace laya::jit {

Buffer::Buffer(std::shared_ptr<Device> device, void* data, size_t bytes, bool is_host)
    : device_(std::move(device)), data_(data), bytes_(bytes), is_host_(is_host) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer taken(std::move(other));  // so that what this buffer held is freed here
  swap(taken);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) device_->release(data_, is_host_);
}

void Buffer::swap(Buffer& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(is_host_, other.is_host_);
}

}  // namespace laya::jit
