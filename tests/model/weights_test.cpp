#include "model/weights.h"

#include <cstring>

#include "model/convert.h"
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

TEST_CASE("every weight of a model gets an address inside its storage") {
  const auto device = jit::open_cpu_device(2);
  const Checkpoint checkpoint = value_of(open_checkpoint(test::checkpoint_of("tiny")));
  const Plan plan = make_plan(checkpoint.config, {}, device->target());
  const Weights weights = value_of(load_weights(checkpoint, plan, *device, *test::shared_engine()));
  const auto* begin = weights.storage.as<std::byte>();
  const auto inside = [&](const void* address) {
    const auto* byte = static_cast<const std::byte*>(address);
    return byte >= begin && byte < begin + weights.storage.size();
  };
  CHECK(weights.encoder[0].attn_norm == nullptr);
  for (const EncoderLayerWeights& layer : weights.encoder) {
    CHECK(inside(layer.qkv));
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

TEST_CASE("layers of one RoPE base share one table") {
  const auto device = jit::open_cpu_device(2);
  const Checkpoint checkpoint = value_of(open_checkpoint(test::checkpoint_of("base_layers")));
  const Plan plan = make_plan(checkpoint.config, {}, device->target());
  const Weights weights = value_of(load_weights(checkpoint, plan, *device, *test::shared_engine()));
  CHECK(weights.full_rope.cos == weights.sliding_rope.cos);
}

}  // namespace laya::model
