// The whole model: against the reference implementations' outputs in tests/fixtures, and what its
// interface promises.
#include "model/model.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "tests/model/recording.h"
#include "tests/model/support.h"

namespace laya::model {
namespace {

using test::contains;
using test::load_fixture_model;
using test::message_of;
using test::value_of;

const char* const kModels[] = {"tiny", "base_layers", "large_layers", "one_head_layer"};

// What is allowed between our probabilities and the reference's, which is fp32 on a CPU.
double allowed_error(const jit::Device& device, DType dtype) {
  switch (dtype) {
    case DType::kF32: return device.target().backend == jit::Backend::kCpu ? 1e-5 : 1e-4;
    case DType::kF16: return 0.005;
    case DType::kBF16: return 0.03;
  }
  return 0;
}

std::vector<DType> dtypes_of(const jit::Device& device) {
  std::vector<DType> dtypes;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (check_precision(dtype, device.target())) dtypes.push_back(dtype);
  }
  return dtypes;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return largest;
}

size_t argmax(const std::vector<float>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

// The option we choose may be another one only if the reference all but ties the two.
bool is_same_choice(const Prediction& ours, const Prediction& reference, double allowed) {
  const auto& p = reference.probabilities;
  return p[argmax(p)] - p[argmax(ours.probabilities)] <= allowed;
}

void check_against_reference(Model& model, const jit::Device& device, const std::string& name) {
  const DType dtype = model.plan().precision.compute;
  const double allowed = allowed_error(device, dtype);
  const test::FixtureRows fixture = test::read_fixture_rows(name);
  const auto predictions = value_of(model.predict(fixture.rows));
  double worst = 0;
  double worst_action = 0;
  for (size_t i = 0; i < predictions.size(); ++i) {
    CAPTURE(i);
    const Prediction& expected = fixture.expected[i];
    worst =
        std::max(worst, largest_difference(predictions[i].probabilities, expected.probabilities));
    worst_action = std::max(
        worst_action, largest_difference(predictions[i].action_logits, expected.action_logits));
    CHECK(is_same_choice(predictions[i], expected, allowed));
  }
  MESSAGE(name << " in " << std::string(to_string(dtype)) << " on " << device.name()
               << ": max |dp| " << worst << ", max |d action logit| " << worst_action);
  CHECK(worst <= allowed);
  CHECK(worst_action <= 10 * allowed);  // logits are on a larger scale than probabilities
}

bool is_identical(const Prediction& a, const Prediction& b) {
  return a.logits == b.logits && a.probabilities == b.probabilities &&
         a.action_logits == b.action_logits;
}

bool are_identical(const std::vector<Prediction>& a, const std::vector<Prediction>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_identical);
}

// A batch of rows with `length` tokens each, of words that depend on `seed`.
std::vector<Row> rows_of(size_t count, int32_t length, int32_t seed) {
  std::vector<Row> rows(count);
  for (size_t r = 0; r < count; ++r) {
    for (int32_t i = 0; i < length; ++i) {
      rows[r].ids.push_back((seed + 37 * i + 11 * static_cast<int32_t>(r)) % 500);
    }
    rows[r].markers = {1, length / 2, length - 1};
    rows[r].qtype = seed % 3;
  }
  return rows;
}

}  // namespace

TEST_CASE("predictions agree with the reference implementations") {
  for (const auto& device : test::devices()) {
    for (const DType dtype : dtypes_of(*device)) {
      for (const char* name : kModels) {
        const auto model = load_fixture_model(name, device, {.dtype = dtype});
        check_against_reference(*model, *device, name);
      }
    }
  }
}

TEST_CASE("a row's result is the same to the bit whatever shares the batch") {
  for (const auto& device : test::devices()) {
    for (const DType dtype : dtypes_of(*device)) {
      const auto model = load_fixture_model("tiny", device, {.dtype = dtype});
      const auto rows = test::read_fixture_rows("tiny").rows;
      const auto together = value_of(model->predict(rows));
      for (size_t i = 0; i < rows.size(); ++i) {
        CAPTURE(i);
        const auto alone = value_of(model->predict(std::span(&rows[i], 1)));
        CHECK(is_identical(alone[0], together[i]));
      }
    }
  }
}

TEST_CASE("batches give the rows' results in input order, sorted by length or not") {
  for (const auto& device : test::devices()) {
    const auto model = load_fixture_model("tiny", device);
    const auto rows = test::read_fixture_rows("tiny").rows;
    const auto expected = value_of(model->predict(rows));
    for (const size_t size : {size_t{1}, size_t{4}, size_t{1000}}) {
      for (const bool sorted : {false, true}) {
        const int64_t before = model->stats().batches;
        const BatchOptions options{.batch_size = size, .sort_by_length = sorted};
        CHECK(are_identical(value_of(model->predict_batch(rows, options)), expected));
        CHECK(model->stats().batches - before ==
              static_cast<int64_t>((rows.size() + size - 1) / size));
      }
    }
  }
}

TEST_CASE("no rows give no predictions") {
  const auto model = load_fixture_model("tiny", test::cpu_device());
  CHECK(value_of(model->predict({})).empty());
  CHECK(value_of(model->predict_batch({}, {.sort_by_length = true})).empty());
  CHECK(model->stats().batches == 0);
}

TEST_CASE("a wrong row is named and nothing is computed") {
  const auto model = load_fixture_model("tiny", test::cpu_device());
  auto rows = rows_of(3, 10, 1);
  rows[2].ids[4] = 1024;
  CHECK(contains(message_of(model->predict(rows)), "row 2: ids[4] is 1024, allowed: 0 to 1023"));
  CHECK(contains(message_of(model->predict_batch(rows, {.batch_size = 1})), "row 2: ids[4]"));
  CHECK(contains(message_of(model->predict_batch(rows, {.batch_size = 0})), "batch_size is 0"));
  CHECK(model->stats().batches == 0);
}

TEST_CASE("many threads get the same results as one") {
  for (const auto& device : test::devices()) {
    const auto model = load_fixture_model("tiny", device);
    std::vector<std::vector<Row>> batches;
    std::vector<std::vector<Prediction>> expected;
    for (int32_t i = 0; i < 6; ++i) {
      batches.push_back(rows_of(1 + static_cast<size_t>(i) % 3, 20 + 30 * i, i));
      expected.push_back(value_of(model->predict(batches.back())));
    }
    std::atomic<int> wrong{0};
    {
      std::vector<std::jthread> threads;
      for (size_t t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
          for (size_t i = 0; i < batches.size(); ++i) {
            const size_t which = (i + t) % batches.size();
            const auto result = model->predict(batches[which]);
            if (!result || !are_identical(*result, expected[which])) ++wrong;
          }
        });
      }
    }
    CHECK(wrong == 0);
    CHECK(model->stats().batches == 6 + 8 * 6);
  }
}

TEST_CASE("what the warm tool compiles is what a prediction uses, no more and no less") {
  test::RecordingBackend backend(test::cpu_device(), test::shared_engine());
  const auto model =
      value_of(Model::load(test::checkpoint_of("tiny"), backend.engine, backend.device));
  for (const int32_t length : {4, 64, 65, 500, 1024}) {
    for (const size_t count : {1, 3}) value_of(model->predict(rows_of(count, length, 1)));
  }
  std::set<std::string> planned;
  for (const jit::KernelSpec& spec : model->plan().specs()) planned.insert(spec.to_string());
  CHECK(backend.recording->launched == planned);
}

TEST_CASE("after the plan is warm, loading and predicting compile nothing") {
  const test::TempDir directory;
  const Checkpoint checkpoint = value_of(open_checkpoint(test::checkpoint_of("one_head_layer")));
  const auto device = test::cpu_device();
  const Plan plan =
      make_plan(checkpoint.config, {.table = checkpoint.table_dtype()}, device->target());
  const auto specs = plan.specs();
  for (const auto& report : test::make_engine(directory.path())->warm(specs)) {
    REQUIRE(report.outcome.has_value());
  }
  const auto engine = test::make_engine(directory.path());
  const auto model = value_of(Model::load(test::checkpoint_of("one_head_layer"), engine, device));
  value_of(model->predict(rows_of(2, 70, 3)));
  CHECK(engine->stats().compiled == 0);
  CHECK(engine->stats().disk_hits == static_cast<int64_t>(specs.size()));
}

TEST_CASE("without a cache and without a compiler's leave, loading says what is missing") {
  jit::Options options;
  options.jit = jit::JitMode::kNever;
  const auto engine = value_of(jit::Engine::create(std::move(options)));
  const auto model = Model::load(test::checkpoint_of("tiny"), engine, test::cpu_device());
  REQUIRE_FALSE(model.has_value());
  CHECK(model.error().kind == ErrorKind::kNotCached);
}

TEST_CASE("a dtype that the device lacks and a broken checkpoint are refused") {
  const auto device = test::cpu_device();
  CHECK(contains(message_of(Model::load(test::checkpoint_of("tiny"), test::shared_engine(), device,
                                        {.dtype = DType::kF16})),
                 "cannot compute in fp16"));
  const test::TempDir empty;
  CHECK(contains(message_of(Model::load(empty.path(), test::shared_engine(), device)),
                 "rl_agent_config.json"));
}

TEST_CASE("loading tells how long it took and what it holds") {
  const auto model = load_fixture_model("tiny", test::cpu_device());
  const ModelStats stats = model->stats();
  CHECK(stats.kernels_ready_s > 0);
  CHECK(stats.weights_ready_s > 0);
  CHECK(stats.load_s >= stats.kernels_ready_s);
  CHECK(stats.weight_bytes > 1024 * 128 * 2);
  CHECK(stats.workspace_bytes == 0);
}

TEST_CASE("work memory is linear in the tokens and kept") {
  const auto model = load_fixture_model("tiny", test::cpu_device());
  value_of(model->predict(rows_of(4, 250, 1)));
  const int64_t thousand = model->stats().workspace_bytes;
  value_of(model->predict(rows_of(16, 250, 1)));
  const int64_t four_thousand = model->stats().workspace_bytes;
  CHECK(four_thousand == doctest::Approx(4 * static_cast<double>(thousand)).epsilon(0.05));
  value_of(model->predict(rows_of(1, 10, 1)));
  CHECK(model->stats().workspace_bytes == four_thousand);
}

TEST_CASE("warm-up shapes are checked and run") {
  const auto model = load_fixture_model("tiny", test::cpu_device());
  const WarmupShape good[] = {{.rows = 2, .tokens = 100, .options = 3}, {}};
  test::check_ok(model->warmup(good));
  CHECK(model->stats().batches > 0);
  const WarmupShape bad[] = {{.rows = 0},
                             {.tokens = 9000},
                             {.tokens = 4, .options = 5},
                             {.rows = int64_t{1} << 40},
                             {.options = 256}};
  for (const WarmupShape& shape : bad) {
    CHECK_FALSE(model->warmup(std::span(&shape, 1)).has_value());
  }
}

}  // namespace laya::model
