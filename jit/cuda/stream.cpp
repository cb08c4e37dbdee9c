#include "jit/cuda/stream.h"

#include <utility>

namespace laya::jit::cuda {
namespace {

std::string bytes_text(size_t bytes) {
  return std::to_string(bytes) + " bytes";
}

}  // namespace

CudaStream::~CudaStream() {
  // A stream that is recording cannot be destroyed.
  if (is_capturing_) (void)driver().end_capture(context(), handle());
}

Result<void> CudaStream::synchronize() {
  auto done = driver().synchronize(context(), handle());
  if (!done) {
    return while_doing(
        "waiting for " + device_->name() +
            " (a fault here comes from work queued "
            "earlier, and the process can no longer use this GPU after most of them)",
        std::move(done).error());
  }
  return {};
}

Result<void> CudaStream::begin_capture() {
  auto begun = driver().begin_capture(context(), handle());
  if (!begun) return while_doing("beginning to record a graph", std::move(begun).error());
  is_capturing_ = true;
  return {};
}

Result<std::unique_ptr<Graph>> CudaStream::end_capture() {
  auto exec = driver().end_capture(context(), handle());
  is_capturing_ = false;
  auto code = std::exchange(recorded_code_, {});
  if (!exec) return while_doing("recording a graph", std::move(exec).error());
  return std::make_unique<CudaGraph>(*std::move(exec), std::move(code));
}

Result<void> CudaStream::launch(Graph& graph) {
  auto* recorded = dynamic_cast<CudaGraph*>(&graph);
  if (recorded == nullptr) {
    return fail(ErrorKind::kBadInput, "this graph was not recorded on a GPU");
  }
  auto launched = driver().launch(context(), handle(), recorded->exec());
  if (!launched) return while_doing("launching a graph", std::move(launched).error());
  return {};
}

Result<void> CudaStream::copy_to_device(void* device_dst, const void* host_src, size_t bytes) {
  if (bytes == 0) return {};
  auto done = driver().copy_to_device(context(), handle(), device_dst, host_src, bytes);
  if (!done) {
    return while_doing("copying " + bytes_text(bytes) + " to " + device_->name(),
                       std::move(done).error());
  }
  return {};
}

Result<void> CudaStream::copy_to_host(void* host_dst, const void* device_src, size_t bytes) {
  if (bytes == 0) return {};
  auto done = driver().copy_to_host(context(), handle(), host_dst, device_src, bytes);
  if (!done) {
    return while_doing("copying " + bytes_text(bytes) + " from " + device_->name(),
                       std::move(done).error());
  }
  return {};
}

Result<void> CudaStream::fill(void* device_dst, uint8_t value, size_t bytes) {
  if (bytes == 0) return {};
  auto done = driver().fill(context(), handle(), device_dst, value, bytes);
  if (!done) {
    return while_doing("filling " + bytes_text(bytes) + " on " + device_->name(),
                       std::move(done).error());
  }
  return {};
}

Result<void> CudaStream::make_events() {
  if (!start_) {
    LAYA_ASSIGN(start_, driver().create_event(context()));
  }
  if (!end_) {
    LAYA_ASSIGN(end_, driver().create_event(context()));
  }
  return {};
}

Result<double> CudaStream::time_ms(const std::function<Result<void>()>& work) {
  LAYA_TRY(make_events());
  LAYA_TRY(driver().record(context(), handle(), start_.get()));
  LAYA_TRY(work());
  LAYA_TRY(driver().record(context(), handle(), end_.get()));
  LAYA_TRY(driver().wait(context(), end_.get()));
  return driver().elapsed_ms(context(), start_.get(), end_.get());
}

}  // namespace laya::jit::cuda
