// What the tests of the CUDA side share: the compiler, a GPU if there is one, and runs of one test
// case in a process of its own.
#pragma once

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "jit/compilers.h"
#include "jit/device.h"
#include "jit/loader.h"

namespace laya::test {

inline void print_skip(const std::string& reason) {
  std::printf("[SKIP] %s\n", reason.c_str());
  std::fflush(stdout);
}

inline jit::Compiler& nvrtc() {
  static const auto compiler = jit::make_nvrtc_compiler({}, {});
  return *compiler;
}

/// False, with a line that says why, where there is no NVRTC.
inline bool has_nvrtc() {
  if (!nvrtc().identity().empty()) return true;
  print_skip(nvrtc().unavailable_reason());
  return false;
}

/// GPU 0; null, with a line that says why, where there is none.
inline std::shared_ptr<jit::Device> gpu() {
  auto device = jit::open_cuda_device(0);
  if (device) return *device;
  print_skip(device.error().message);
  return nullptr;
}

inline jit::CompileRequest request(std::string source, std::string entry,
                                   const std::string& target = "sm_80") {
  jit::CompileRequest request;
  request.name = entry + ".cu";
  request.source = std::move(source);
  request.entry = std::move(entry);
  request.target = {jit::Backend::kCuda, target};
  request.options = nvrtc().options(request.target);
  return request;
}

inline const std::string kSaxpy =
    "extern \"C\" __global__ void saxpy(float a, const float* x, float* y, int n) {\n"
    "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n) y[i] = a * x[i] + y[i];\n"
    "}\n";

/// True if a file with `name` in its path is mapped into this process.
inline bool is_mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) != std::string::npos) return true;
  }
  return false;
}

struct ProcessResult {
  int status = -1;     ///< exit status; -1: ended by a signal
  std::string output;  ///< of both streams
};

/// Runs the test case called `test_case`, which is marked doctest::skip(), in a fresh process.
inline ProcessResult run_in_fresh_process(const std::string& test_case) {
  char self[PATH_MAX] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return {};
  const std::string command =
      std::string("'") + self + "' --no-skip --no-colors -tc='" + test_case + "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  ProcessResult result;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) result.output.append(buffer, n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

}  // namespace laya::test
