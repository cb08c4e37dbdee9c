// The CPU's exp, log and erf, on a dense sample of all fp32 values.
#include <bit>
#include <cmath>
#include <string>

#include "tests/templates/harness.h"

namespace laya::test {
namespace {

constexpr const char* kTemplate = R"(
//! entry apply
//! param F    word  exp exp2 log erf
//! arg from  ptr
//! arg to    ptr
//! arg n     i32   a multiple of 64
#include "vector_math.h"

extern "C" void apply(const fp32* from, fp32* to, int n, Block) {
  for (int i = 0; i < n; i += kWidth) {
    const Vec x = load(from + i);
    if constexpr (F == F_exp) store(to + i, exp_of_nonpositive(x));
    if constexpr (F == F_exp2) store(to + i, exp2_of_nonpositive(x));
    if constexpr (F == F_log) store(to + i, log(x));
    if constexpr (F == F_erf) store(to + i, erf(x));
  }
}
)";

/// Every 499th fp32 number between two of the same sign, in order of magnitude.
std::vector<float> sample(float from, float to) {
  std::vector<float> values;
  const uint32_t last = std::bit_cast<uint32_t>(to);
  for (uint32_t bits = std::bit_cast<uint32_t>(from); bits < last; bits += 499) {
    values.push_back(std::bit_cast<float>(bits));
  }
  while (values.size() % 64 != 0) values.push_back(to);
  return values;
}

std::vector<float> evaluate(const std::string& function, const std::vector<float>& values) {
  Harness& on = cpu_harness();
  REQUIRE(on.engine().add_template("apply", jit::Backend::kCpu, kTemplate).has_value());
  const jit::KernelSpec spec = jit::KernelSpec("apply", on.target()).set("F", function);
  const DeviceArray from = on.floats(values), to = on.output(values.size());
  on.launch(spec, {}, from, to, static_cast<int>(values.size()));
  return on.read(to);
}

/// Largest error in units of the last place of the right result, which must be a normal number.
double worst_ulp(const std::string& function, double (*right)(double),
                 const std::vector<float>& values) {
  const std::vector<float> results = evaluate(function, values);
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = right(values[i]);
    if (std::abs(expected) < 0x1p-126) continue;
    const double ulp = std::ldexp(1.0, std::ilogb(expected) - 23);
    const double error = std::abs(results[i] - expected) / ulp;
    if (!(error <= worst)) worst = error;  // NaN too
  }
  return worst;
}

}  // namespace

TEST_CASE("vector math: at most 2 units in the last place, over the whole range") {
  CHECK(worst_ulp("exp", std::exp, sample(-0.0f, -87.3f)) <= 2.0);
  CHECK(worst_ulp("exp2", std::exp2, sample(-0.0f, -126.0f)) <= 2.0);
  CHECK(worst_ulp("log", std::log, sample(0x1p-126f, 3e38f)) <= 2.0);
  CHECK(worst_ulp("erf", std::erf, sample(0x1p-126f, 100.0f)) <= 2.0);
  CHECK(worst_ulp("erf", std::erf, sample(-0x1p-126f, -100.0f)) <= 2.0);
}

TEST_CASE("vector math: the ends of the range") {
  const float inf = INFINITY;
  std::vector<float> values(64, -inf);
  values[1] = -0.0f;
  values[2] = -1e-40f;
  values[3] = -200;
  values[4] = -1e30f;
  for (const std::string function : {"exp", "exp2"}) {
    CAPTURE(function);
    const std::vector<float> results = evaluate(function, values);
    const float expected[] = {0, 1, 1, 0, 0};
    for (size_t i = 0; i < std::size(expected); ++i) CHECK(results[i] == expected[i]);
    CHECK(std::isnan(evaluate(function, std::vector<float>(64, NAN)).front()));
  }
  values = {inf, -inf, 0.0f, -0.0f, 1e-45f, -1e-40f, 40.0f, -40.0f};
  values.resize(64);
  const std::vector<float> results = evaluate("erf", values);
  const float expected[] = {1, -1, 0, -0.0f, 1.4e-45f, -1.12838e-40f, 1, -1};
  for (size_t i = 0; i < std::size(expected); ++i) {
    CAPTURE(i);
    CHECK(std::abs(results[i] - expected[i]) <= 3e-45f);
    CHECK(std::signbit(results[i]) == std::signbit(expected[i]));
  }
  CHECK(evaluate("log", std::vector<float>(64, 1.0f)).front() == 0);
}

}  // namespace laya::test
