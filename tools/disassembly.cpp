// Runs the disassembler as a child process on a temporary file.
#include "tools/disassembly.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include "tools/temp_directory.h"

namespace laya::tools {
namespace {

constexpr size_t kMachineOffset = 18;  // e_machine of an ELF header, two bytes, little-endian
constexpr unsigned kCudaMachine = 190;

using Arguments = std::vector<std::string>;

const std::array kCudaTools{Arguments{"nvdisasm"}, Arguments{"/usr/local/cuda/bin/nvdisasm"}};
const std::array kCpuTools{Arguments{"llvm-objdump", "-d"}, Arguments{"llvm-objdump-19", "-d"},
                           Arguments{"objdump", "-d"}};

std::string read_all(int fd) {
  std::string text;
  std::array<char, 1 << 14> buffer;
  for (;;) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
}

/// The output of a program; nothing if it cannot be started, kUnavailable if it fails.
Result<std::optional<std::string>> output_of(Arguments arguments) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) {
    return fail(ErrorKind::kUnavailable, "no pipe: " + std::generic_category().message(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  char* no_environment[] = {nullptr};
  const int error = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), no_environment);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text = error == 0 ? read_all(ends[0]) : std::string();
  ::close(ends[0]);
  if (error != 0) return std::nullopt;
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  return fail(ErrorKind::kUnavailable, arguments.front() + " failed on this artifact");
}

Result<std::string> first_output(std::span<const Arguments> tools, const std::string& file,
                                 const char* missing) {
  for (Arguments arguments : tools) {
    arguments.push_back(file);
    LAYA_ASSIGN(auto text, output_of(std::move(arguments)));
    if (text) return *std::move(text);
  }
  return fail(ErrorKind::kUnavailable, missing);
}

}  // namespace

Result<std::string> disassemble(std::string_view object) {
  if (!object.starts_with("\x7f"
                          "ELF") ||
      object.size() < kMachineOffset + 2) {
    return fail(ErrorKind::kBadInput, "this artifact is no ELF file, so it has no disassembly");
  }
  LAYA_ASSIGN(const TempDirectory directory, TempDirectory::create());
  const std::string file = (directory.path() / "kernel.o").string();
  std::ofstream stream(file, std::ios::binary);
  stream.write(object.data(), static_cast<std::streamsize>(object.size()));
  stream.close();
  if (!stream) return fail(ErrorKind::kUnavailable, file + " cannot be written");
  const unsigned machine = static_cast<uint8_t>(object[kMachineOffset]) |
                           static_cast<unsigned>(static_cast<uint8_t>(object[kMachineOffset + 1]))
                               << 8;
  if (machine == kCudaMachine) {
    return first_output(kCudaTools, file,
                        "no nvdisasm in PATH or /usr/local/cuda/bin; the CUDA toolkit has it");
  }
  return first_output(kCpuTools, file, "no llvm-objdump or objdump in PATH; binutils has one");
}

}  // namespace laya::tools
