#include "tools/devices.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "tools/console.h"

namespace laya::tools {
namespace {

/// N of "cuda:N"; 0 of "cuda".
std::optional<int> parse_ordinal(std::string_view word) {
  if (word == "cuda") return 0;
  if (!word.starts_with("cuda:")) return std::nullopt;
  word.remove_prefix(5);
  int ordinal = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), ordinal);
  const bool is_whole = error == std::errc() && end == word.data() + word.size();
  return is_whole && ordinal >= 0 ? std::optional(ordinal) : std::nullopt;
}

}  // namespace

Result<std::shared_ptr<jit::Device>> open_device(const std::string& word,
                                                 const jit::CpuThreads& threads) {
  if (word == "cpu") return jit::open_cpu_device(threads);
  if (word == "auto") {
    auto gpu = jit::open_cuda_device(0);
    if (gpu) return gpu;
    note("using the CPU: " + gpu.error().message);
    return jit::open_cpu_device(threads);
  }
  if (const std::optional<int> ordinal = parse_ordinal(word))
    return jit::open_cuda_device(*ordinal);
  return fail(ErrorKind::kBadInput, "device '" + word + "' is not auto, cpu, cuda or cuda:N");
}

}  // namespace laya::tools
