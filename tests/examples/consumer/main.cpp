// Multiplies numbers on the CPU with a kernel of its own. The second run compiles nothing.
#include <cstdio>
#include <vector>

#include "jit/device.h"
#include "jit/engine.h"

namespace jit = laya::jit;

constexpr const char* kScale = R"(//! entry scale
//! param FACTOR int 1..1000   what to multiply by
//! arg   x      ptr           [n] f32, changed in place
//! arg   n      i32           elements

extern "C" void scale(float* x, int n, Block block) {
  const int begin = block.x * 256;
  for (int i = begin; i < n && i < begin + 256; ++i) x[i] *= FACTOR;
}
)";

laya::Result<void> run() {
  LAYA_ASSIGN(jit::Options options, jit::options_from_environment());
  LAYA_ASSIGN(const auto engine, jit::Engine::create(options));
  LAYA_TRY(engine->add_template("scale", jit::Backend::kCpu, kScale));

  const auto device = jit::open_cpu_device(/*threads=*/0);
  LAYA_ASSIGN(const auto stream, device->create_stream());
  LAYA_ASSIGN(const auto kernel,
              engine->kernel(jit::KernelSpec("scale", device->target()).set("FACTOR", 3)));

  std::vector<float> x(1000, 14);
  const int n = 1000;
  float* data = x.data();
  LAYA_TRY(kernel->launch(*stream, {.grid = {(n + 255) / 256}}, data, n));
  LAYA_TRY(stream->synchronize());
  std::printf("x[999] = %g, kernels compiled: %d\n", x[999], int(engine->stats().compiled));
  return {};
}

int main() {
  const auto done = run();
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
