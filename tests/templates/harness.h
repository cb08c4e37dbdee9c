// What every kernel test needs: a device with an engine, arrays with guard zones around them,
// inputs from a seeded generator, and comparisons.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jit/engine.h"
#include "model/ops.h"
#include "tests/temp_dir.h"

namespace laya::test {

/// Memory of a device between two guard zones, which Harness::read() checks.
class DeviceArray {
 public:
  DeviceArray(jit::Buffer buffer, size_t count, model::DType dtype);

  void* data() const { return at(0); }
  /// Address of element `index`.
  void* at(size_t index) const;
  size_t count() const { return count_; }
  model::DType dtype() const { return dtype_; }
  const jit::Buffer& buffer() const { return buffer_; }

  static constexpr size_t kGuardBytes = 4096;

 private:
  jit::Buffer buffer_;
  size_t count_;
  model::DType dtype_;
};

/// A residual stream as kernels keep it: see model/ops.h.
struct ResidualArray {
  DeviceArray x;
  DeviceArray lower;  ///< empty where x is fp32

  /// What kernels get as x_low.
  void* low() const { return x.dtype() == model::DType::kF32 ? nullptr : lower.data(); }
};

/// One device, a stream of it and an engine. A failure inside ends the test case.
class Harness {
 public:
  explicit Harness(std::shared_ptr<jit::Device> device);
  /// Compiles for another target than the device's own: one that uses a part of its features.
  Harness(std::shared_ptr<jit::Device> device, jit::Target target);

  const jit::Target& target() const { return target_; }
  /// False for another target than the device's own and where LAYA_TEST_SMALL is set (under
  /// compute-sanitizer): large shapes add nothing but time then.
  bool is_thorough() const {
    return target_ == device_->target() && std::getenv("LAYA_TEST_SMALL") == nullptr;
  }
  bool is_cpu() const { return target().backend == jit::Backend::kCpu; }
  jit::Engine& engine() { return *engine_; }
  jit::Device& device() { return *device_; }

  /// Compute dtypes that the templates of this device offer.
  std::vector<model::DType> dtypes() const;

  DeviceArray floats(const std::vector<float>& values, model::DType dtype = model::DType::kF32);
  DeviceArray ints(const std::vector<int>& values);
  /// Every byte is 0xFF, which is NaN in every dtype: what a kernel leaves out is seen.
  DeviceArray output(size_t count, model::DType dtype = model::DType::kF32);
  /// Of a model that computes in `compute`. With fp16, values are rounded to 22 bits.
  ResidualArray residual(const std::vector<float>& values, model::DType compute);
  ResidualArray residual_output(size_t count, model::DType compute);
  /// A weight [n, k], geglu: [2n, k], in the layout that this device's gemm reads.
  DeviceArray weight(const std::vector<float>& values, model::DType dtype, int64_t n, int64_t k,
                     bool geglu);

  /// Waits for the device, checks both guard zones, converts to fp32.
  std::vector<float> read(const DeviceArray& array);
  /// Both parts, joined.
  std::vector<float> read(const ResidualArray& array);

  /// Compiles the kernels of `ops` in parallel, so that run() need not do it one by one.
  void prepare(const std::vector<model::Op>& ops);

  /// Launches the variant over `rows` rows. An argument is a DeviceArray, an address or a number.
  template <class... Args>
  void run(const model::Variant& variant, int64_t rows, const Args&... args) {
    launch(variant.spec, variant.rule.shape(rows), args...);
  }
  /// Launches the variant that the model would choose.
  template <class... Args>
  void run(const model::Op& op, int64_t rows, const Args&... args) {
    run(op.choose(rows), rows, args...);
  }
  template <class... Args>
  void launch(const jit::KernelSpec& spec, const jit::LaunchShape& shape, const Args&... args) {
    const auto kernel = engine_->kernel(spec);
    REQUIRE_MESSAGE(kernel.has_value(), kernel.error().to_string());
    require((*kernel)->launch(*stream_, shape, argument(args)...));
  }

 private:
  static void* argument(const DeviceArray& array) { return array.data(); }
  template <class Arg>
  static const Arg& argument(const Arg& arg) {
    return arg;
  }

  static void require(const Result<void>& result);
  DeviceArray make(const void* values, size_t count, model::DType dtype);
  std::vector<std::byte> read_bytes(const DeviceArray& array);

  TempDir cache_;
  std::shared_ptr<jit::Device> device_;
  jit::Target target_;
  std::unique_ptr<jit::Stream> stream_;
  std::shared_ptr<jit::Engine> engine_;
};

Harness& cpu_harness();
/// The same CPU without its newer instructions; nullptr where it is of another kind.
Harness* avx512_harness();
Harness* avx2_harness();
Harness* sse2_harness();
/// nullptr without a GPU: prints the reason once, as "[SKIP] ...".
Harness* cuda_harness();
/// The GPU without what only its own architecture has ("sm_90" for "sm_90a"), so that the kernels
/// of all GPUs run; nullptr where there is no such difference.
Harness* plain_cuda_harness();

/// In place of an array that a kernel must not touch.
inline void* const kNoArray = nullptr;

/// A test that runs on the CPU as "name (cpu)", "name (cpu, avx512)", "name (cpu, avx2)" and
/// "name (cpu, sse2)".
#define CPU_TEST(name) CPU_TEST_NAMED(DOCTEST_ANONYMOUS(device_test_), name)
#define CPU_TEST_NAMED(function, name)             \
  static void function(::laya::test::Harness& on); \
  CPU_TEST_CASES(function, name)                   \
  static void function(::laya::test::Harness& on)
/// A test that runs on the first GPU as "name (cuda)" and "name (cuda, plain)".
#define CUDA_TEST(name) CUDA_TEST_NAMED(DOCTEST_ANONYMOUS(device_test_), name)
#define CUDA_TEST_NAMED(function, name)            \
  static void function(::laya::test::Harness& on); \
  CUDA_TEST_CASES(function, name)                  \
  static void function(::laya::test::Harness& on)
/// A test that runs as all of these.
#define DEVICE_TEST(name) DEVICE_TEST_NAMED(DOCTEST_ANONYMOUS(device_test_), name)
#define DEVICE_TEST_NAMED(function, name)          \
  static void function(::laya::test::Harness& on); \
  CPU_TEST_CASES(function, name)                   \
  CUDA_TEST_CASES(function, name)                  \
  static void function(::laya::test::Harness& on)

#define CPU_TEST_CASES(function, name)                                      \
  TEST_CASE(name " (cpu)") {                                                \
    function(::laya::test::cpu_harness());                                  \
  }                                                                         \
  TEST_CASE(name " (cpu, avx512)") {                                        \
    if (auto* harness = ::laya::test::avx512_harness()) function(*harness); \
  }                                                                         \
  TEST_CASE(name " (cpu, avx2)") {                                          \
    if (auto* harness = ::laya::test::avx2_harness()) function(*harness);   \
  }                                                                         \
  TEST_CASE(name " (cpu, sse2)") {                                          \
    if (auto* harness = ::laya::test::sse2_harness()) function(*harness);   \
  }
#define CUDA_TEST_CASES(function, name)                                         \
  TEST_CASE(name " (cuda)") {                                                   \
    if (auto* harness = ::laya::test::cuda_harness()) function(*harness);       \
  }                                                                             \
  TEST_CASE(name " (cuda, plain)") {                                            \
    if (auto* harness = ::laya::test::plain_cuda_harness()) function(*harness); \
  }

/// Inputs: the same for the same seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  /// Below `bound`.
  int below(int bound) { return static_cast<int>(next() % static_cast<uint64_t>(bound)); }
  /// Uniform in [low, high), rounded to a value of `dtype`.
  std::vector<float> values(size_t count, float low, float high,
                            model::DType dtype = model::DType::kF32);

 private:
  uint64_t next();
  uint64_t state_;
};

float rounded(float value, model::DType dtype);
std::vector<double> to_double(std::span<const float> values);

/// |actual - expected| <= absolute + relative * |expected|
struct Tolerance {
  double absolute;
  double relative;
};
/// For a result that is computed in fp32 from inputs of order 1 and rounded to `dtype` once.
Tolerance tolerance_of(model::DType dtype);

void check_close(std::span<const float> actual, std::span<const double> expected,
                 Tolerance tolerance);
/// `actual` are the values rounded to `dtype`, whatever becomes of ties.
void check_rounded(std::span<const float> actual, std::span<const float> values,
                   model::DType dtype);
void check_same_bits(std::span<const float> actual, std::span<const float> expected);

}  // namespace laya::test
