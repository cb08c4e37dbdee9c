#include "tests/templates/harness.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <iostream>

#include "model/convert.h"
#include "model/residual.h"

namespace laya::test {
namespace {

using model::DType;

constexpr std::byte kGuard{0xa5};
constexpr std::byte kPoison{0xff};

std::vector<std::byte> encode(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * model::size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[4 * i], &values[i], 4);
      continue;
    }
    const uint16_t bits =
        dtype == DType::kBF16 ? model::float_to_bf16(values[i]) : model::float_to_fp16(values[i]);
    std::memcpy(&bytes[2 * i], &bits, 2);
  }
  return bytes;
}

float decode(const std::byte* from, DType dtype) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, from, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  return dtype == DType::kBF16 ? model::bf16_to_float(bits) : model::fp16_to_float(bits);
}

/// The value, or the end of the test case.
template <class T>
T need(Result<T> result) {
  REQUIRE_MESSAGE(result.has_value(), result.error().to_string());
  return *std::move(result);
}

}  // namespace

DeviceArray::DeviceArray(jit::Buffer buffer, size_t count, DType dtype)
    : buffer_(std::move(buffer)), count_(count), dtype_(dtype) {}

void* DeviceArray::at(size_t index) const {
  return buffer_.as<std::byte>() + kGuardBytes + index * model::size_of(dtype_);
}

Harness::Harness(std::shared_ptr<jit::Device> device)
    : Harness(device, jit::Target(device->target())) {}

Harness::Harness(std::shared_ptr<jit::Device> device, jit::Target target)
    : device_(std::move(device)), target_(std::move(target)) {
  // From the environment, so that LAYA_TEMPLATE_DIR can name other templates to test.
  jit::Options options = need(jit::options_from_environment());
  options.cache_dir = cache_.path();
  options.cache_layers.clear();
  engine_ = need(jit::Engine::create(options));
  stream_ = need(device_->create_stream());
}

std::vector<DType> Harness::dtypes() const {
  if (is_cpu()) return {DType::kF32, DType::kBF16};
  if (jit::compute_capability(target()) < 80) return {DType::kF32, DType::kF16};
  return {DType::kF32, DType::kBF16, DType::kF16};
}

void Harness::require(const Result<void>& result) {
  REQUIRE_MESSAGE(result.has_value(), result.error().to_string());
}

DeviceArray Harness::make(const void* values, size_t count, DType dtype) {
  const size_t bytes = count * model::size_of(dtype);
  std::vector<std::byte> image(bytes + 2 * DeviceArray::kGuardBytes, kGuard);
  std::byte* payload = image.data() + DeviceArray::kGuardBytes;
  if (values == nullptr) {
    std::fill_n(payload, bytes, kPoison);
  } else {
    std::memcpy(payload, values, bytes);
  }
  jit::Buffer buffer = need(device_->allocate(image.size()));
  require(stream_->copy_to_device(buffer.data(), image.data(), image.size()));
  require(stream_->synchronize());
  return DeviceArray(std::move(buffer), count, dtype);
}

DeviceArray Harness::floats(const std::vector<float>& values, DType dtype) {
  const std::vector<std::byte> bytes = encode(values, dtype);
  // An empty vector may have no address, which would mean "poison".
  return make(bytes.empty() ? &kPoison : bytes.data(), values.size(), dtype);
}

DeviceArray Harness::ints(const std::vector<int>& values) {
  static_assert(sizeof(int) == sizeof(float));
  return make(values.empty() ? static_cast<const void*>(&kPoison) : values.data(), values.size(),
              DType::kF32);
}

DeviceArray Harness::output(size_t count, DType dtype) {
  return make(nullptr, count, dtype);
}

ResidualArray Harness::residual(const std::vector<float>& values, DType compute) {
  const DType dtype = model::residual_dtype(target(), compute);
  if (dtype == DType::kF32) return {floats(values), output(0)};
  std::vector<uint16_t> upper, lower;
  for (const float value : values) {
    const model::SplitFloat parts = model::split_residual(value, dtype);
    upper.push_back(parts.upper);
    lower.push_back(parts.lower);
  }
  const auto part = [&](const std::vector<uint16_t>& bits) {
    return make(bits.empty() ? static_cast<const void*>(&kPoison) : bits.data(), bits.size(),
                dtype);
  };
  return {part(upper), part(lower)};
}

ResidualArray Harness::residual_output(size_t count, DType compute) {
  const DType dtype = model::residual_dtype(target(), compute);
  return {output(count, dtype), output(dtype == DType::kF32 ? 0 : count, dtype)};
}

DeviceArray Harness::weight(const std::vector<float>& values, DType dtype, int64_t n, int64_t k,
                            bool geglu) {
  DeviceArray plain = floats(values, dtype);
  if (!is_cpu()) return plain;
  const int64_t size = model::packed_weight_size(target(), dtype, n, k, geglu);
  DeviceArray packed = output(static_cast<size_t>(size), dtype);
  run(model::pack_weight_op(target(), dtype, geglu), n, plain, packed, static_cast<int>(n),
      static_cast<int>(k));
  return packed;
}

std::vector<std::byte> Harness::read_bytes(const DeviceArray& array) {
  std::vector<std::byte> image(array.buffer().size());
  require(stream_->copy_to_host(image.data(), array.buffer().data(), image.size()));
  require(stream_->synchronize());
  size_t damaged = 0;
  for (size_t i = 0; i < DeviceArray::kGuardBytes; ++i) {
    damaged += image[i] != kGuard || image[image.size() - 1 - i] != kGuard;
  }
  CHECK_MESSAGE(damaged == 0, "the kernel wrote outside of the array");
  return {image.begin() + DeviceArray::kGuardBytes, image.end() - DeviceArray::kGuardBytes};
}

std::vector<float> Harness::read(const DeviceArray& array) {
  const std::vector<std::byte> bytes = read_bytes(array);
  std::vector<float> values(array.count());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = decode(&bytes[i * model::size_of(array.dtype())], array.dtype());
  }
  return values;
}

std::vector<float> Harness::read(const ResidualArray& array) {
  if (array.x.dtype() == DType::kF32) return read(array.x);
  const std::vector<std::byte> upper = read_bytes(array.x), lower = read_bytes(array.lower);
  std::vector<float> values;
  for (size_t at = 0; at < upper.size(); at += 2) {
    model::SplitFloat parts;
    std::memcpy(&parts.upper, &upper[at], 2);
    std::memcpy(&parts.lower, &lower[at], 2);
    values.push_back(model::join_residual(parts, array.x.dtype()));
  }
  return values;
}

void Harness::prepare(const std::vector<model::Op>& ops) {
  std::vector<jit::KernelSpec> specs;
  for (const model::Op& op : ops) {
    for (const model::Variant& variant : op.variants) specs.push_back(variant.spec);
  }
  for (const jit::BuildReport& report : engine_->warm(specs)) {
    REQUIRE_MESSAGE(report.outcome.has_value(), report.outcome.error().to_string());
  }
}

/// The CPU harness for an x86 CPU with no more than `features`, each with a + in front.
static std::unique_ptr<Harness> make_lesser_harness(const std::string& features,
                                                    const char* newest) {
  const jit::Target& host = jit::host_cpu_target();
  if (!host.name.starts_with("x86_64:") || !jit::has_cpu_feature(host, newest)) {
    std::cout << "[SKIP] tests of kernels for " << newest << ": this CPU has none\n";
    return nullptr;
  }
  return std::make_unique<Harness>(jit::open_cpu_device(2),
                                   jit::Target{jit::Backend::kCpu, "x86_64:x86-64:" + features});
}

Harness& cpu_harness() {
  // Two threads at least, so that blocks do run side by side.
  static Harness harness(jit::open_cpu_device(2));
  return harness;
}

Harness* avx512_harness() {
  static const auto harness = make_lesser_harness(
      "+avx,+avx2,+avx512bw,+avx512dq,+avx512f,+avx512vl,+f16c,+fma", "avx512f");
  return harness.get();
}

Harness* avx2_harness() {
  static const auto harness = make_lesser_harness("+avx,+avx2,+f16c,+fma", "avx2");
  return harness.get();
}

Harness* sse2_harness() {
  static const auto harness = make_lesser_harness("+sse2", "sse2");
  return harness.get();
}

Harness* cuda_harness() {
  static const std::unique_ptr<Harness> harness = []() -> std::unique_ptr<Harness> {
    auto device = jit::open_cuda_device(0);
    if (device) return std::make_unique<Harness>(*std::move(device));
    std::cout << "[SKIP] tests on a GPU: " << device.error().message << "\n";
    return nullptr;
  }();
  return harness.get();
}

Harness* plain_cuda_harness() {
  static const std::unique_ptr<Harness> harness = []() -> std::unique_ptr<Harness> {
    auto device = jit::open_cuda_device(0);
    if (!device || !(*device)->target().name.ends_with('a')) return nullptr;
    jit::Target target = (*device)->target();
    target.name.pop_back();
    return std::make_unique<Harness>(*std::move(device), std::move(target));
  }();
  return harness.get();
}

uint64_t Random::next() {
  // SplitMix64.
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::vector<float> Random::values(size_t count, float low, float high, DType dtype) {
  std::vector<float> result(count);
  for (float& value : result) {
    const float unit = static_cast<float>(next() >> 40) * 0x1p-24f;
    value = rounded(low + (high - low) * unit, dtype);
  }
  return result;
}

float rounded(float value, DType dtype) {
  switch (dtype) {
    case DType::kF32: return value;
    case DType::kBF16: return model::bf16_to_float(model::float_to_bf16(value));
    case DType::kF16: return model::fp16_to_float(model::float_to_fp16(value));
  }
  return value;
}

std::vector<double> to_double(std::span<const float> values) {
  return {values.begin(), values.end()};
}

Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return {4e-6, 4e-6};
    case DType::kBF16: return {2e-5, 0x1.1p-8};
    case DType::kF16: return {2e-5, 0x1.1p-11};
  }
  return {};
}

void check_close(std::span<const float> actual, std::span<const double> expected,
                 Tolerance tolerance) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
    if (error <= allowed) continue;  // false for NaN
    FAIL_CHECK("element " << i << " is " << actual[i] << ", expected " << expected[i]
                          << " with an error of at most " << allowed);
    return;
  }
}

void check_rounded(std::span<const float> actual, std::span<const float> values, DType dtype) {
  if (dtype == DType::kF32) return check_same_bits(actual, values);
  // Half of the distance of two neighbours; those of small fp16 are subnormal.
  const double half = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
  check_close(actual, to_double(values), {dtype == DType::kF16 ? 0x1p-25 : 0, half});
}

void check_same_bits(std::span<const float> actual, std::span<const float> expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::bit_cast<uint32_t>(actual[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    FAIL_CHECK("element " << i << " is " << actual[i] << ", not exactly " << expected[i]);
    return;
  }
}

}  // namespace laya::test
