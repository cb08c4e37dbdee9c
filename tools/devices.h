// The device that a command runs on, from what people write.
#pragma once

#include <memory>
#include <string>

#include "cache/result.h"
#include "jit/device.h"

namespace laya::tools {

/// "cpu", "cuda", "cuda:N", or "auto": GPU 0, else the CPU with a note on stderr that says why.
/// kBadInput: another word. kUnavailable: there is no such GPU.
Result<std::shared_ptr<jit::Device>> open_device(const std::string& word);

}  // namespace laya::tools
