#include "model/synthetic.h"

#include <cmath>

#include "model/convert.h"
#include "model/random.h"
#include "tests/model/support.h"

namespace laya::model {
namespace {

using test::contains;
using test::message_of;
using test::value_of;

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string write(const std::filesystem::path& directory, uint64_t seed) {
  SyntheticOptions options;
  options.seed = seed;
  test::check_ok(
      write_synthetic_checkpoint(directory, test::fixture_model("one_head_layer").config, options));
  return bytes_of(directory / "model.safetensors");
}

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  convert(tensor.bytes.data(), tensor.dtype, reinterpret_cast<std::byte*>(values.data()),
          DType::kF32, values.size());
  return values;
}

double mean_square(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

TEST_CASE("the same seed gives the same bytes, another seed others") {
  const test::TempDir directory;
  const std::string first = write(directory.path() / "a", 5);
  CHECK(first == write(directory.path() / "b", 5));
  CHECK(first != write(directory.path() / "a", 6));  // also: files are replaced
}

TEST_CASE("random numbers are the same on every machine") {
  // Values from a second implementation.
  CHECK(random_bits(0, 0, 0) == 0x238275bc38fcbe91ULL);
  CHECK(random_bits(1, 2, 3) == 0x8568f7c4e53b5a35ULL);
  CHECK(std::bit_cast<uint32_t>(random_normal(1, 2, 3, 1.0F, 0.125F)) == 0x3f946b1dU);
}

TEST_CASE("random numbers have the mean and the variance asked for") {
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double value = random_normal(9, 1, static_cast<uint64_t>(i), 2.0F, 0.5F);
    sum += value;
    squares += (value - 2.0) * (value - 2.0);
  }
  CHECK(sum / kCount == doctest::Approx(2.0).epsilon(0.005));
  CHECK(squares / kCount == doctest::Approx(0.25).epsilon(0.02));
}

TEST_CASE("weights are F16, finite, and scaled by the size of their layer") {
  const Checkpoint checkpoint = value_of(open_checkpoint(test::checkpoint_of("tiny")));
  for (const Tensor& tensor : checkpoint.weights.tensors()) {
    CAPTURE(tensor.name);
    CHECK(tensor.dtype == DType::kF16);
    const double power = mean_square(values_of(tensor));
    CHECK(std::isfinite(power));
    CHECK(power > 0);
  }
  const auto wide = values_of(checkpoint.tensor("head.layers.0.linear2.weight"));
  CHECK(mean_square(wide) == doctest::Approx(1.0 / 512).epsilon(0.05));
  CHECK(values_of(checkpoint.tensor("temperature")) == std::vector<float>{1, 1, 1});
}

TEST_CASE("progress ends at the size of the data") {
  const test::TempDir directory;
  int64_t last = 0;
  int64_t size = 0;
  SyntheticOptions options;
  options.on_progress = [&](int64_t done, int64_t total) {
    CHECK(done > last);
    last = done;
    size = total;
  };
  test::check_ok(write_synthetic_checkpoint(directory.path(),
                                            test::fixture_model("one_head_layer").config, options));
  CHECK(last == size);
  CHECK(size > 300000);
}

TEST_CASE("a place that cannot be written to is named") {
  const test::TempDir directory;
  const auto blocked = directory.path() / "file";
  std::ofstream{blocked};
  const Config config = test::fixture_model("one_head_layer").config;
  CHECK(contains(message_of(write_synthetic_checkpoint(blocked, config, {})), blocked.string()));
  std::filesystem::create_directories(directory.path() / "model.safetensors");
  CHECK(contains(message_of(write_synthetic_checkpoint(directory.path(), config, {})),
                 "model.safetensors"));
}

TEST_CASE("a configuration that could not be read again is refused") {
  const test::TempDir directory;
  Config config = test::fixture_model("one_head_layer").config;
  config.hidden_size = 100;
  CHECK(contains(message_of(write_synthetic_checkpoint(directory.path(), config, {})),
                 "hidden_size is 100"));
}

}  // namespace laya::model
