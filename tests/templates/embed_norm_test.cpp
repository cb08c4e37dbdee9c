#include "tests/templates/harness.h"
#include "tests/templates/reference.h"

namespace laya::test {
namespace {

using model::DType;

constexpr int kVocabulary = 100;
constexpr float kEps = 1e-5f;

/// Row 3 is far from zero, which a variance in one pass would not survive; row 4 is tiny, which is
/// subnormal in fp16.
std::vector<float> make_table(Random& random, int d, DType dtype) {
  std::vector<float> table = random.values(static_cast<size_t>(kVocabulary * d), -2, 2, dtype);
  for (int i = 0; i < d; ++i) {
    float* column = table.data() + i;
    column[3 * d] = rounded(column[3 * d] + 300.0f, dtype);
    column[4 * d] = rounded(column[4 * d] * 1e-5f, dtype);
  }
  return table;
}

std::vector<int> make_ids(Random& random, int rows) {
  std::vector<int> ids = {3, 4, 0, kVocabulary - 1, 3};
  while (static_cast<int>(ids.size()) < rows) ids.push_back(random.below(kVocabulary));
  ids.resize(static_cast<size_t>(rows));
  return ids;
}

struct Outputs {
  std::vector<float> x, a;
};

void check_embed_norm(Harness& on, DType table_dtype, DType dtype, int d) {
  const model::Op op = model::embed_norm_op(on.target(), table_dtype, dtype, d);
  CAPTURE(op.variants.front().spec.to_string());
  Random random(static_cast<uint64_t>(d));
  const std::vector<float> table = make_table(random, d, table_dtype);
  const std::vector<float> weight = random.values(static_cast<size_t>(d), -1, 2);
  const DeviceArray device_table = on.floats(table, table_dtype), device_weight = on.floats(weight);
  const auto run = [&](const std::vector<int>& ids) {
    const int rows = static_cast<int>(ids.size());
    const DeviceArray device_ids = on.ints(ids);
    const ResidualArray x = on.residual_output(ids.size() * d, dtype);
    const DeviceArray a = on.output(ids.size() * d, dtype);
    on.run(op, rows, device_ids, device_table, device_weight, x.x, x.low(), a, kEps, rows);
    return Outputs{on.read(x), on.read(a)};
  };
  for (const int rows : {0, 1, 2, 7, 65}) {
    CAPTURE(rows);
    const std::vector<int> ids = make_ids(random, rows);
    std::vector<double> embeddings;
    for (const int id : ids) {
      embeddings.insert(embeddings.end(), table.begin() + id * d, table.begin() + (id + 1) * d);
    }
    const std::vector<double> expected =
        reference::layer_norm(embeddings, to_double(weight), {}, kEps);
    const Outputs outputs = run(ids);
    for (int row = 0; row < rows; ++row) {
      const size_t at = static_cast<size_t>(row) * d;
      // A mean of 300 costs 8 bits of what is left of the row.
      check_close(std::span(outputs.x).subspan(at, d), std::span(expected).subspan(at, d),
                  ids[row] == 3 ? Tolerance{2e-4, 0} : Tolerance{4e-6, 4e-6});
    }
    check_rounded(outputs.a, outputs.x, dtype);
    if (rows > 6) {
      const Outputs alone = run({ids[6]});
      check_same_bits(alone.x, std::span(outputs.x).subspan(static_cast<size_t>(6 * d), d));
    }
  }
}

}  // namespace

DEVICE_TEST(
    "embed_norm: rows of the table are normalised, as the residual stream and in the compute "
    "dtype") {
  std::vector<model::Op> ops;
  const auto for_all = [&](auto use) {
    for (const DType dtype : on.dtypes()) {
      for (const DType table : {DType::kF32, DType::kBF16, DType::kF16}) {
        for (const int d : {72, 768}) use(table, dtype, d);
      }
      use(DType::kF16, dtype, 8);
      use(DType::kF16, dtype, 1024);
    }
  };
  for_all([&](DType table, DType dtype, int d) {
    ops.push_back(model::embed_norm_op(on.target(), table, dtype, d));
  });
  on.prepare(ops);
  for_all([&](DType table, DType dtype, int d) { check_embed_norm(on, table, dtype, d); });
}

}  // namespace laya::test
