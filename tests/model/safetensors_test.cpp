#include "model/safetensors.h"

#include <algorithm>
#include <cstring>

#include "model/random.h"
#include "tests/model/support.h"

namespace laya::model {
namespace {

using test::contains;
using test::message_of;
using test::value_of;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>((length >> (8 * i)) & 0xff);
  return bytes + rest;
}

std::string file_of(const std::string& header, size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\x3c'));
}

Result<std::vector<Tensor>> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "some.safetensors");
}

const std::string kTwoTensors = R"({"__metadata__":{"format":"pt"},)"
                                R"("b":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},)"
                                R"("a":{"dtype":"F32","shape":[],"data_offsets":[12,16]}})";

}  // namespace

TEST_CASE("tensors are found by name with dtype, shape and bytes") {
  const test::TempDir directory;
  const auto path = directory.path() / "model.safetensors";
  std::ofstream(path, std::ios::binary) << file_of(kTwoTensors, 16);
  const SafetensorsFile file = value_of(SafetensorsFile::open(path));
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.tensors()[0].name == "a");
  CHECK(file.find("a")->shape.empty());
  CHECK(file.find("a")->elements() == 1);
  const Tensor* b = file.find("b");
  CHECK(b->dtype == DType::kF16);
  CHECK(b->shape == std::vector<int64_t>{2, 3});
  CHECK(b->elements() == 6);
  CHECK(b->bytes[0] == std::byte{0x3c});
  CHECK(file.find("c") == nullptr);
}

TEST_CASE("a file that cannot be read is named with the reason") {
  const test::TempDir directory;
  CHECK(contains(message_of(SafetensorsFile::open(directory.path() / "none")),
                 "none: No such file or directory"));
  CHECK(contains(message_of(SafetensorsFile::open(directory.path())), "not a regular file"));
  std::ofstream(directory.path() / "empty");
  CHECK(contains(message_of(SafetensorsFile::open(directory.path() / "empty")),
                 "truncated at offset 0"));
}

TEST_CASE("a header length beyond the file or beyond reason is refused") {
  CHECK(contains(message_of(parse("1234567")), "truncated at offset 7"));
  CHECK(contains(message_of(parse(with_length(3, "{}"))), "header length at offset 0 is 3"));
  CHECK(contains(message_of(parse(with_length(UINT64_MAX, "{}"))), "18446744073709551615"));
  CHECK(contains(message_of(parse(with_length(0, ""))), "not JSON"));
}

TEST_CASE("a header that is no flat JSON object is refused") {
  CHECK(contains(message_of(parse(file_of("{\"a\":", 0))), "not JSON"));
  CHECK(contains(message_of(parse(file_of("[]", 0))), "not a JSON object"));
  CHECK(contains(message_of(parse(file_of("{\"a\":1e999}", 0))), "not JSON"));
  CHECK(contains(message_of(parse(file_of("\"\xff\"", 0))), "not JSON"));
  CHECK(contains(message_of(parse(file_of(std::string(1 << 20, '['), 0))), "not JSON"));
  const std::string depth(100000, '[');
  CHECK(contains(message_of(parse(file_of("{\"a\":" + depth + std::string(100000, ']') + "}", 0))),
                 "nested too deep"));
  CHECK(contains(message_of(parse(file_of("{\"a\":1,\"a\":1}", 0))), "names 'a' twice"));
  CHECK(contains(message_of(parse(file_of(R"({"a":{"dtype":"F16","dtype":"F32","shape":[]}})", 0))),
                 "names 'dtype' twice"));
}

TEST_CASE("a wrong tensor entry is named") {
  struct Case {
    const char* entry;
    const char* part;
  };
  const Case cases[] = {
      {"7", "not an object"},
      {R"({"shape":[1],"data_offsets":[0,2]})", "dtype is null, allowed: F16, BF16, F32"},
      {R"({"dtype":"I64","shape":[1],"data_offsets":[0,8]})", "dtype is \"I64\""},
      {R"({"dtype":"F16","shape":1,"data_offsets":[0,2]})", "shape is not"},
      {R"({"dtype":"F16","shape":[-1],"data_offsets":[0,2]})", "shape is not"},
      {R"({"dtype":"F16","shape":[1.5],"data_offsets":[0,2]})", "shape is not"},
      {R"({"dtype":"F16","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,2]})", "shape is not"},
      {R"({"dtype":"F16","shape":[2147483647,2147483647,2147483647],"data_offsets":[0,2]})",
       "does not fit its 2 bytes"},
      {R"({"dtype":"F16","shape":[2],"data_offsets":[0,2]})", "shape [2] does not fit its 2 bytes"},
      {R"({"dtype":"F16","shape":[1],"data_offsets":[0]})", "data_offsets is not"},
      {R"({"dtype":"F16","shape":[1],"data_offsets":[-2,0]})", "data_offsets is not"},
      {R"({"dtype":"F16","shape":[1],"data_offsets":[4,2]})", "are not inside"},
      {R"({"dtype":"F16","shape":[4],"data_offsets":[0,8]})", "0 to 8 are not inside"},
  };
  for (const Case& bad : cases) {
    const std::string message =
        message_of(parse(file_of(std::string("{\"w\":") + bad.entry + "}", 4)));
    CAPTURE(message);
    CHECK(contains(message, bad.part));
    CHECK(contains(message, "some.safetensors: tensor 'w'"));
  }
}

TEST_CASE("overlapping tensors, gaps and left-over data are refused") {
  const std::string first = R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)";
  CHECK(contains(message_of(parse(file_of(
                     first + R"("b":{"dtype":"F16","shape":[2],"data_offsets":[2,6]}})", 6))),
                 "tensor 'b' begins at 2, but the data before it ends at 4"));
  CHECK(contains(message_of(parse(file_of(
                     first + R"("b":{"dtype":"F16","shape":[1],"data_offsets":[6,8]}})", 8))),
                 "tensor 'b' begins at 6, but the data before it ends at 4"));
  CHECK(contains(message_of(parse(file_of(kTwoTensors, 20))), "from offset 16 on belongs to no"));
}

TEST_CASE("no cut and no changed byte makes the reader crash or accept nonsense") {
  const std::string good = file_of(kTwoTensors, 16);
  for (size_t size = 0; size < good.size(); ++size) {
    CHECK_FALSE(parse(good.substr(0, size)).has_value());
  }
  const size_t header_end = 8 + kTwoTensors.size();
  int accepted = 0;
  for (uint64_t round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (uint64_t change = 0; change < 1 + round % 3; ++change) {
      const uint64_t random = random_bits(7, round, change);
      bytes[random % header_end] = static_cast<char>(random >> 32);
    }
    const auto tensors = parse(bytes);
    if (!tensors) continue;
    ++accepted;  // a changed name or metadata is no fault
    for (const Tensor& tensor : *tensors) {
      const auto* begin = reinterpret_cast<const char*>(tensor.bytes.data());
      REQUIRE(begin >= bytes.data());
      REQUIRE(begin + tensor.bytes.size() <= bytes.data() + bytes.size());
    }
  }
  CHECK(accepted < 10000);
}

}  // namespace laya::model
