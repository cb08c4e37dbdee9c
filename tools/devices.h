// The device that a command runs on, from what people write.
#pragma once

#include <memory>
#include <string>

#include "cache/result.h"
#include "jit/cpu_threads.h"
#include "jit/device.h"

namespace laya::tools {

/// `threads`: of the CPU. "cpu", "cuda", "cuda:N", or "auto": GPU 0, else the CPU with a note on
/// stderr that says why. kBadInput: another word. kUnavailable: there is no such GPU.
Result<std::shared_ptr<jit::Device>> open_device(const std::string& word,
                                                 const jit::CpuThreads& threads);

}  // namespace laya::tools
