/* Compiles and launches a kernel of the application's own through the C interface: y = A*x + y, on
 * the CPU, or on a GPU with `saxpy cuda`. A second run takes the kernel from the cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/laya_jit.h"

static const char* const kCudaText =
    "//! entry  saxpy\n"
    "//! param  A    int  -100..100    the factor\n"
    "//! arg    x    ptr               [n] f32\n"
    "//! arg    y    ptr               [n] f32, in and out\n"
    "//! arg    n    i32\n"
    "extern \"C\" __global__ void saxpy(const float* x, float* y, int n) {\n"
    "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < n) y[i] = A * x[i] + y[i];\n"
    "}\n";

static const char* const kCpuText =
    "//! entry  saxpy\n"
    "//! param  A    int  -100..100    the factor\n"
    "//! arg    x    ptr               [n] f32\n"
    "//! arg    y    ptr               [n] f32, in and out\n"
    "//! arg    n    i32\n"
    "extern \"C\" void saxpy(const float* x, float* y, int n, Block block) {\n"
    "  const int begin = block.x * 256, end = begin + 256 < n ? begin + 256 : n;\n"
    "  for (int i = begin; i < end; ++i) y[i] = A * x[i] + y[i];\n"
    "}\n";

static void check(int ok, char* error) {
  if (ok) return;
  fprintf(stderr, "saxpy: %s\n", error != NULL ? error : "failed");
  exit(1);
}

int main(int argc, char** argv) {
  enum { kCount = 1000 };
  char* error = NULL;
  const char* device_name = argc > 1 ? argv[1] : "cpu";

  laya_engine* engine = laya_engine_create(NULL, NULL, NULL, &error);
  check(engine != NULL, error);
  check(laya_engine_add_template(engine, "saxpy", LAYA_CUDA, kCudaText, &error) == LAYA_OK, error);
  check(laya_engine_add_template(engine, "saxpy", LAYA_CPU, kCpuText, &error) == LAYA_OK, error);

  laya_device* device = laya_device_open(device_name, NULL, &error);
  check(device != NULL, error);
  laya_stream* stream = laya_stream_create(device, &error);
  check(stream != NULL, error);

  const laya_param params[] = {{"A", 3, NULL}};
  laya_kernel* kernel =
      laya_kernel_get(engine, "saxpy", laya_device_target(device), params, 1, NULL, &error);
  check(kernel != NULL, error);

  float x[kCount], y[kCount], result[kCount];
  for (int i = 0; i < kCount; ++i) {
    x[i] = (float)i;
    y[i] = 1.0f;
  }
  laya_buffer* x_buffer = laya_buffer_create(device, sizeof(x), &error);
  check(x_buffer != NULL, error);
  laya_buffer* y_buffer = laya_buffer_create(device, sizeof(y), &error);
  check(y_buffer != NULL, error);
  void* x_device = laya_buffer_data(x_buffer);
  void* y_device = laya_buffer_data(y_buffer);
  check(laya_copy_to_device(stream, x_device, x, sizeof(x), &error) == LAYA_OK, error);
  check(laya_copy_to_device(stream, y_device, y, sizeof(y), &error) == LAYA_OK, error);

  const int32_t n = kCount;
  const laya_arg args[] = {
      {&x_device, sizeof(x_device)}, {&y_device, sizeof(y_device)}, {&n, sizeof(n)}};
  const laya_launch_shape shape = {{(kCount + 255) / 256, 1, 1}, {256, 1, 1}, 0};
  check(laya_kernel_launch(kernel, stream, &shape, args, 3, &error) == LAYA_OK, error);
  check(laya_copy_to_host(stream, result, y_device, sizeof(result), &error) == LAYA_OK, error);
  check(laya_stream_synchronize(stream, &error) == LAYA_OK, error);

  for (int i = 0; i < kCount; ++i) {
    if (result[i] != 3.0f * (float)i + 1.0f) {
      fprintf(stderr, "saxpy: y[%d] is %g\n", i, result[i]);
      return 1;
    }
  }
  const laya_stats stats = laya_engine_stats(engine);
  printf("saxpy on %s: right; compiled %d, from the cache %d\n", device_name, (int)stats.compiled,
         (int)stats.disk_hits);

  laya_kernel_free(kernel);
  laya_buffer_free(x_buffer);
  laya_buffer_free(y_buffer);
  laya_stream_free(stream);
  laya_device_free(device);
  laya_engine_free(engine);
  return 0;
}
