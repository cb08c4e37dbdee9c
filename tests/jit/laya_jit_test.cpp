// The C interface, where tests/examples/saxpy.c does not reach.
#include "jit/laya_jit.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

constexpr const char* kTemplate = R"(//! entry scale
//! param BY  int  1..100
//! arg   x   ptr  [n] f32, changed in place
//! arg   n   i32

extern "C" void scale(float* x, int n, Block block) {
  const Range range = share_of(n, block.x, block.nx);
  for (int i = range.begin; i < range.end; ++i) x[i] *= BY;
}
)";

struct Calls {
  int count = 0;
  int tasks = 0;
};

void execute(void* user, int count, void (*task)(void* context, int index), void* context) {
  auto* calls = static_cast<Calls*>(user);
  ++calls->count;
  calls->tasks += count;
  for (int i = 0; i < count; ++i) task(context, i);
}

}  // namespace

TEST_CASE("laya_cpu_device_open: kernels run on the application's threads") {
  char* error = nullptr;
  laya_engine* engine = laya_engine_create("", nullptr, nullptr, &error);
  REQUIRE_MESSAGE(engine != nullptr, error);
  REQUIRE(laya_engine_add_template(engine, "scale", LAYA_CPU, kTemplate, &error) == LAYA_OK);

  Calls calls;
  laya_status status = LAYA_INTERNAL;
  laya_device* device = laya_cpu_device_open(2, 0, execute, &calls, &status, &error);
  REQUIRE_MESSAGE(device != nullptr, error);
  CHECK(status == LAYA_OK);
  laya_stream* stream = laya_stream_create(device, &error);
  const laya_param by{"BY", 3, nullptr};
  laya_kernel* kernel =
      laya_kernel_get(engine, "scale", laya_device_target(device), &by, 1, &status, &error);
  if (status == LAYA_UNAVAILABLE) {
    MESSAGE("[SKIP] " << error);
    laya_error_free(error);
  } else {
    REQUIRE_MESSAGE(kernel != nullptr, error);
    std::vector<float> x(1000, 14);
    float* const data = x.data();
    const int32_t n = 1000;
    const laya_arg args[] = {{&data, sizeof(data)}, {&n, sizeof(n)}};
    const laya_launch_shape shape{{10, 1, 1}, {1, 1, 1}, 0};
    CHECK(laya_kernel_launch(kernel, stream, &shape, args, 2, &error) == LAYA_OK);
    CHECK(x == std::vector<float>(1000, 42));
    CHECK(calls.count == 1);
    CHECK(calls.tasks == 2);
  }
  laya_kernel_free(kernel);
  laya_stream_free(stream);
  laya_device_free(device);
  laya_engine_free(engine);
}

TEST_CASE("laya_cpu_device_open: a negative number of threads is refused") {
  char* error = nullptr;
  laya_status status = LAYA_OK;
  CHECK(laya_cpu_device_open(-1, 0, nullptr, nullptr, &status, &error) == nullptr);
  CHECK(status == LAYA_BAD_INPUT);
  CHECK(std::string(error) == "bad-input: threads is -1, allowed: 0 and more");
  laya_error_free(error);
}
