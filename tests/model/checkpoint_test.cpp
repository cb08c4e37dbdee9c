#include "model/checkpoint.h"

#include "model/layout.h"
#include "tests/model/support.h"

namespace laya::model {
namespace {

using test::contains;
using test::message_of;
using test::value_of;

// A private copy of a tiny checkpoint whose header a test can rewrite.
class EditableCheckpoint {
 public:
  EditableCheckpoint() {
    std::filesystem::copy(test::checkpoint_of("one_head_layer"), directory_.path(),
                          std::filesystem::copy_options::recursive);
    std::ifstream stream(file(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
    size_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(bytes[i]);
    header_ = nlohmann::json::parse(bytes.substr(8, length));
    data_ = bytes.substr(8 + length);
  }

  nlohmann::json& header() { return header_; }
  void rename(const std::string& from, const std::string& to) {
    header_[to] = header_.at(from);
    header_.erase(from);
  }
  Result<Checkpoint> open() const {
    const std::string text = header_.dump();
    std::ofstream stream(file(), std::ios::binary);
    for (int i = 0; i < 8; ++i) stream.put(static_cast<char>((text.size() >> (8 * i)) & 0xff));
    stream << text << data_;
    stream.close();
    return open_checkpoint(directory_.path());
  }
  std::filesystem::path file() const { return directory_.path() / "model.safetensors"; }

 private:
  test::TempDir directory_;
  nlohmann::json header_;
  std::string data_;
};

}  // namespace

TEST_CASE("a complete checkpoint opens") {
  const Checkpoint checkpoint = value_of(open_checkpoint(test::checkpoint_of("tiny")));
  CHECK(checkpoint.config == test::fixture_model("tiny").config);
  CHECK(checkpoint.weights.tensors().size() == tensor_layout(checkpoint.config).size());
  CHECK(checkpoint.table_dtype() == DType::kF16);
  CHECK(checkpoint.tensor("scorer.3.weight").shape == std::vector<int64_t>{1, 128});
}

TEST_CASE("the layout has the names of the public checkpoints") {
  const auto layout = tensor_layout(value_of(preset_config("large")));
  const auto has = [&](const std::string& name, const std::vector<int64_t>& shape) {
    return std::any_of(layout.begin(), layout.end(), [&](const TensorSpec& spec) {
      return spec.name == name && spec.shape == shape;
    });
  };
  // 2 of the embedding, 28 layers of 6 without the first norm, final norm, 2 head layers of 12,
  // type embedding, scorer 6, action head 4, temperature.
  CHECK(layout.size() == 2 + 28 * 6 - 1 + 1 + 2 * 12 + 1 + 6 + 4 + 1);
  CHECK(has("encoder.layers.27.mlp.Wi.weight", {5248, 1024}));
  CHECK(has("encoder.layers.1.attn_norm.weight", {1024}));
  CHECK_FALSE(has("encoder.layers.0.attn_norm.weight", {1024}));
  CHECK(has("head.layers.1.self_attn.in_proj_bias", {3072}));
  CHECK(has("act_head.0.weight", {256, 1028}));
}

TEST_CASE("missing, unknown and misshaped tensors are named") {
  EditableCheckpoint checkpoint;
  checkpoint.rename("scorer.1.bias", "scorer.9.bias");
  checkpoint.header()["type_emb.weight"]["shape"] = {64, 3};
  const std::string message = message_of(checkpoint.open());
  CAPTURE(message);
  CHECK(contains(message, "scorer.1.bias is missing"));
  CHECK(contains(message, "scorer.9.bias is not part of the model"));
  CHECK(contains(message, "type_emb.weight has shape [64, 3], the configuration says [3, 64]"));
  CHECK(contains(message, checkpoint.file().string()));
  CHECK_FALSE(contains(message, "more"));
}

TEST_CASE("of many wrong tensors the first five are named and the others counted") {
  EditableCheckpoint checkpoint;
  for (const char* name :
       {"scorer.0.weight", "scorer.0.bias", "scorer.1.weight", "scorer.1.bias"}) {
    checkpoint.rename(name, std::string("x.") + name);
  }
  const std::string message = message_of(checkpoint.open());
  CHECK(contains(message, "; and 3 more"));
}

TEST_CASE("a truncated checkpoint names the tensor that is cut") {
  EditableCheckpoint checkpoint;
  REQUIRE(checkpoint.open().has_value());
  std::filesystem::resize_file(checkpoint.file(),
                               std::filesystem::file_size(checkpoint.file()) - 1);
  CHECK(contains(message_of(open_checkpoint(checkpoint.file().parent_path())),
                 "tensor 'temperature': bytes"));
}

TEST_CASE("a directory that does not exist is named") {
  CHECK(contains(message_of(open_checkpoint("/nonexistent/laya")), "/nonexistent/laya is not a"));
}

}  // namespace laya::model
