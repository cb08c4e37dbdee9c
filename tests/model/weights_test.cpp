#include "model/weights.h"

#include <algorithm>
#include <cstring>

#include "model/convert.h"
#include "model/fold_norm.h"
#include "model/upload.h"
#include "tests/model/support.h"

namespace laya::model {
namespace {

using test::contains;
using test::message_of;
using test::value_of;

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

TEST_CASE("arrays larger than a staging buffer arrive whole and converted") {
  const auto device = jit::open_cpu_device(2);
  std::vector<float> large(5'000'000);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i % 2048);
  const std::vector<float> small = {1.5F, -2.0F};
  const Upload uploads[] = {
      {"large", bytes_of(large), DType::kF32, DType::kF16, nullptr, 0},
      {"small", bytes_of(small), DType::kF32, DType::kF32, nullptr, large.size() * 2},
  };
  const jit::Buffer storage = value_of(device->allocate(large.size() * 2 + 8));
  test::check_ok(upload_all(uploads, storage, *device, *test::shared_engine()));
  const auto* halves = storage.as<uint16_t>();
  for (size_t i = 0; i < large.size(); i += 997) {
    REQUIRE(fp16_to_float(halves[i]) == large[i]);
  }
  CHECK(std::memcmp(halves + large.size(), small.data(), 8) == 0);
}

TEST_CASE("a norm is folded into every row of a matrix larger than a staging buffer") {
  const auto device = jit::open_cpu_device(2);
  constexpr size_t kColumns = 96, kRows = 50'000;
  std::vector<float> matrix(kRows * kColumns);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i * 7919 % 1000) - 500;
  std::vector<float> norm_weight(kColumns);
  for (size_t i = 0; i < kColumns; ++i) norm_weight[i] = 0.5F + 0.01F * static_cast<float>(i);
  const Upload uploads[] = {
      {"matrix", bytes_of(matrix), DType::kF32, DType::kBF16, nullptr, 0, norm_weight}};
  const jit::Buffer storage = value_of(device->allocate(matrix.size() * 2));
  test::check_ok(upload_all(uploads, storage, *device, *test::shared_engine()));
  for (size_t row = 0; row < kRows; row += 499) {
    std::vector<float> expected(matrix.begin() + static_cast<std::ptrdiff_t>(row * kColumns),
                                matrix.begin() + static_cast<std::ptrdiff_t>((row + 1) * kColumns));
    fold_norm_weight(expected, norm_weight);
    for (size_t i = 0; i < kColumns; ++i) {
      REQUIRE(storage.as<uint16_t>()[row * kColumns + i] == float_to_bf16(expected[i]));
    }
  }
}

TEST_CASE("a value that the compute dtype cannot hold is an error that names the tensor") {
  const auto device = jit::open_cpu_device(1);
  const std::vector<float> values = {1.0F, 2.0F, 70000.0F};
  const Upload uploads[] = {
      {"encoder.layers.3.mlp.Wi.weight", bytes_of(values), DType::kF32, DType::kF16, nullptr, 0}};
  const jit::Buffer storage = value_of(device->allocate(64));
  const auto moved = upload_all(uploads, storage, *device, *test::shared_engine());
  CHECK(contains(message_of(moved),
                 "tensor 'encoder.layers.3.mlp.Wi.weight': element 2 is too large for fp16"));
  CHECK(moved.error().kind == ErrorKind::kBadInput);
}

TEST_CASE("heads of the first rows are interleaved, and what is too large is named by its place") {
  const auto device = jit::open_cpu_device(1);
  constexpr int64_t kColumns = 2, kRows = 3 * kHeadDim;  // q, k and v of one head
  MatrixOp qkv;
  qkv.rows = kRows, qkv.columns = kColumns, qkv.interleaved_rows = 2 * kHeadDim;
  std::vector<float> values;
  for (int i = 0; i < kRows * kColumns; ++i) values.push_back(static_cast<float>(i));
  const jit::Buffer storage = value_of(device->allocate(values.size() * 4));
  const auto upload = [&](DType to) {
    const Upload uploads[] = {{"Wqkv", bytes_of(values), DType::kF32, to, &qkv, 0}};
    return upload_all(uploads, storage, *device, *test::shared_engine());
  };
  REQUIRE(upload(DType::kF32));
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t in_head = row % kHeadDim, head = row - in_head;
    const int64_t from = row < 2 * kHeadDim ? head + in_head / 2 + in_head % 2 * 32 : row;
    CHECK(storage.as<float>()[row * kColumns] == values[static_cast<size_t>(from * kColumns)]);
  }
  values[33 * kColumns + 1] = 70000.0F;
  CHECK(contains(message_of(upload(DType::kF16)), "tensor 'Wqkv': element 67 is too large"));
}

TEST_CASE("every weight of a model gets an address inside its storage") {
  const auto device = jit::open_cpu_device(2);
  const Checkpoint checkpoint = value_of(open_checkpoint(test::checkpoint_of("tiny")));
  const Plan plan = make_plan(checkpoint.config, {}, device->target());
  int calls = 0;
  const Weights weights =
      value_of(load_weights(checkpoint, plan, *device, *test::shared_engine(), [&] { ++calls; }));
  CHECK(calls == 1);
  const auto* begin = weights.storage.as<std::byte>();
  const auto inside = [&](const void* address) {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= begin && byte < begin + weights.storage.size();
  };
  CHECK(weights.encoder[0].attn_norm.weight == nullptr);
  for (const EncoderLayerWeights& layer : weights.encoder) {
    CHECK(inside(layer.qkv.weight));
    CHECK(inside(layer.mlp_out));
  }
  CHECK(inside(weights.head[1].mlp_out.bias));
  CHECK(weights.full_rope.cos != weights.sliding_rope.cos);  // two bases
  const auto type_embedding = checkpoint.tensor("type_emb.weight").bytes;
  uint16_t second = 0;
  std::memcpy(&second, type_embedding.data() + 2, 2);
  CHECK(static_cast<const float*>(weights.type_embedding)[1] == fp16_to_float(second));
  CHECK(std::memcmp(weights.embedding,
                    checkpoint.tensor("encoder.embeddings.tok_embeddings.weight").bytes.data(),
                    1024 * 128 * 2) == 0);
}

TEST_CASE("where norms are folded, the layers' own are gone and biases hold what they added") {
  const auto device = jit::open_cpu_device(2);
  const Checkpoint checkpoint = value_of(open_checkpoint(test::checkpoint_of("tiny")));
  const Plan plan =
      make_plan(checkpoint.config, {DType::kF16, DType::kF32}, {jit::Backend::kCuda, "sm_90a"});
  const Weights weights =
      value_of(load_weights(checkpoint, plan, *device, *test::shared_engine(), [] {}));
  CHECK(weights.encoder[1].attn_norm.weight == nullptr);
  CHECK(weights.encoder[0].mlp_norm.weight == nullptr);
  CHECK(weights.head[0].norm1.weight != nullptr);  // applied by the encoder's last norm
  CHECK(weights.head[1].norm1.weight == nullptr);
  CHECK(weights.scorer_norm.weight == nullptr);

  const auto floats_of = [&](const std::string& name) {
    const Tensor& tensor = checkpoint.tensor(name);
    std::vector<float> values(tensor.bytes.size() / static_cast<size_t>(size_of(tensor.dtype)));
    convert(tensor.bytes.data(), tensor.dtype, reinterpret_cast<std::byte*>(values.data()),
            DType::kF32, values.size());
    return values;
  };
  const auto check_folded = [&](const std::string& norm, const std::string& product,
                                const LinearWeights& linear) {
    CAPTURE(product);
    const std::vector<float> g = floats_of(norm + ".weight"), c = floats_of(norm + ".bias");
    const std::vector<float> w = floats_of(product + ".weight"), b = floats_of(product + ".bias");
    for (size_t n = 0; n < b.size(); ++n) {
      std::vector<float> row(w.begin() + static_cast<std::ptrdiff_t>(n * g.size()),
                             w.begin() + static_cast<std::ptrdiff_t>((n + 1) * g.size()));
      CHECK(static_cast<const float*>(linear.bias)[n] == b[n] + folded_norm_bias(row, c));
      fold_norm_weight(row, g);
      const auto* folded = static_cast<const float*>(linear.weight) + n * g.size();
      REQUIRE(std::equal(row.begin(), row.end(), folded));
    }
  };
  check_folded("head.layers.0.norm2", "head.layers.0.linear1", weights.head[0].mlp_in);
  check_folded("scorer.0", "scorer.1", weights.scorer_hidden);
}

TEST_CASE("layers of one RoPE base share one table, of angles where a product rotates") {
  const auto device = jit::open_cpu_device(2);
  const Checkpoint checkpoint = value_of(open_checkpoint(test::checkpoint_of("base_layers")));
  const auto load = [&](Precision precision, const jit::Target& target) {
    const Plan plan = make_plan(checkpoint.config, precision, target);
    return value_of(load_weights(checkpoint, plan, *device, *test::shared_engine(), [] {}));
  };
  const Weights weights = load({}, device->target());
  CHECK(weights.full_rope.cos == weights.sliding_rope.cos);
  CHECK(weights.full_rope.angles == nullptr);
  const Weights hopper = load({DType::kF16, DType::kBF16}, {jit::Backend::kCuda, "sm_90a"});
  CHECK(hopper.full_rope.angles == hopper.sliding_rope.angles);
  CHECK(hopper.full_rope.cos == nullptr);
  for (const int i : {0, 1, 777}) {
    const auto* angle = static_cast<const float*>(hopper.full_rope.angles) + 2 * i;
    CHECK(angle[0] == static_cast<const float*>(weights.full_rope.cos)[i]);
    CHECK(angle[1] == static_cast<const float*>(weights.full_rope.sin)[i]);
  }
}

}  // namespace laya::model
