#include "model/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace laya::model {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own implementation
constexpr int kMaxDepth = 2;                       // header -> tensor -> shape; root is 0
constexpr size_t kMaxRank = 8;

tl::unexpected<Error> bad(const std::string& file, const std::string& what) {
  return fail(ErrorKind::kBadInput, file + ": " + what);
}

uint64_t little_endian_u64(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) value |= uint64_t(bytes[i]) << (8 * i);
  return value;
}

// The header's text, without trusting the length in front of it.
Result<std::string_view> header_text(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < kLengthBytes) {
    return bad(file, "truncated at offset " + std::to_string(bytes.size()) +
                         ", the header length needs 8 bytes");
  }
  const uint64_t length = little_endian_u64(bytes);
  if (length > kMaxHeaderBytes || length > bytes.size() - kLengthBytes) {
    return bad(
        file, "header length at offset 0 is " + std::to_string(length) + ", allowed: at most " +
                  std::to_string(std::min<uint64_t>(kMaxHeaderBytes, bytes.size() - kLengthBytes)));
  }
  const auto header = bytes.subspan(kLengthBytes, length);
  return std::string_view(reinterpret_cast<const char*>(header.data()), header.size());
}

// Watches the parser for what a finished document no longer shows: duplicate keys and depth.
class HeaderWatch {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth > kMaxDepth) is_too_deep_ = true;
    if (event == Json::parse_event_t::object_start && !is_too_deep_) {
      keys_.resize(static_cast<size_t>(depth) + 1);
      keys_.back().clear();
    }
    if (event == Json::parse_event_t::key && !is_too_deep_) note_key(parsed.get<std::string>());
    return !is_too_deep_ && !duplicate_;
  }

  bool is_too_deep() const { return is_too_deep_; }
  const std::optional<std::string>& duplicate() const { return duplicate_; }

 private:
  void note_key(std::string key) {
    if (!keys_.back().insert(key).second && !duplicate_) duplicate_ = std::move(key);
  }

  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  bool is_too_deep_ = false;
  std::optional<std::string> duplicate_;
};

Result<Json> parse_header(std::string_view text, const std::string& file) {
  HeaderWatch watch;
  Json header;
  try {
    header = Json::parse(text, std::ref(watch));
  } catch (const Json::exception& failure) {
    return bad(file, std::string("header is not JSON: ") + failure.what());
  }
  if (watch.is_too_deep()) return bad(file, "header is nested too deep");
  if (watch.duplicate()) return bad(file, "header names '" + *watch.duplicate() + "' twice");
  if (!header.is_object()) return bad(file, "header is not a JSON object");
  return header;
}

std::optional<DType> dtype_of(const Json& word) {
  if (word == "F32") return DType::kF32;
  if (word == "BF16") return DType::kBF16;
  if (word == "F16") return DType::kF16;
  return std::nullopt;
}

std::optional<std::vector<int64_t>> shape_of(const Json& list) {
  if (!list.is_array() || list.size() > kMaxRank) return std::nullopt;
  std::vector<int64_t> shape;
  for (const Json& size : list) {
    // 2^31 per dimension keeps the check of the product below simple and is far above any model.
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t(INT32_MAX))
      return std::nullopt;
    shape.push_back(size.get<int64_t>());
  }
  return shape;
}

// Bytes that a tensor of this shape takes; nothing if that is more than `limit`.
std::optional<uint64_t> byte_size(DType dtype, std::span<const int64_t> shape, uint64_t limit) {
  uint64_t bytes = static_cast<uint64_t>(size_of(dtype));
  for (const int64_t size : shape) {
    if (size == 0) return 0;
    if (bytes > limit / static_cast<uint64_t>(size)) return std::nullopt;
    bytes *= static_cast<uint64_t>(size);
  }
  return bytes;
}

Result<Tensor> read_tensor(const std::string& name, const Json& entry,
                           std::span<const std::byte> data, const std::string& file) {
  const std::string where = "tensor '" + name + "': ";
  if (!entry.is_object()) return bad(file, where + "not an object");
  const auto get = [&](const char* field) { return entry.value(field, Json()); };
  const auto dtype = dtype_of(get("dtype"));
  if (!dtype)
    return bad(file, where + "dtype is " + get("dtype").dump() + ", allowed: F16, BF16, F32");
  const auto shape = shape_of(get("shape"));
  if (!shape) return bad(file, where + "shape is not a list of at most 8 sizes");
  const Json offsets = get("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return bad(file, where + "data_offsets is not [begin, end]");
  }
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return bad(file, where + "bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                         " are not inside the file's " + std::to_string(data.size()) +
                         " bytes of data (a truncated file?)");
  }
  if (byte_size(*dtype, *shape, end - begin) != end - begin) {
    return bad(file, where + "shape " + shape_to_string(*shape) + " does not fit its " +
                         std::to_string(end - begin) + " bytes");
  }
  return Tensor{name, *dtype, *shape, data.subspan(begin, end - begin)};
}

// The format wants the data covered exactly: no overlap, no gap, nothing behind the last tensor.
Result<void> check_coverage(const std::vector<Tensor>& tensors, std::span<const std::byte> data,
                            const std::string& file) {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) <
           std::pair(b->bytes.data(), b->bytes.size());
  });
  const std::byte* end = data.data();
  for (const Tensor* tensor : order) {
    if (tensor->bytes.data() != end) {
      return bad(file, "tensor '" + tensor->name + "' begins at " +
                           std::to_string(tensor->bytes.data() - data.data()) +
                           ", but the data before it ends at " + std::to_string(end - data.data()));
    }
    end += tensor->bytes.size();
  }
  if (end != data.data() + data.size()) {
    return bad(
        file, "data from offset " + std::to_string(end - data.data()) + " on belongs to no tensor");
  }
  return {};
}

}  // namespace

int64_t Tensor::elements() const {
  return static_cast<int64_t>(bytes.size()) / size_of(dtype);
}

std::string shape_to_string(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

Result<std::vector<Tensor>> parse_safetensors(std::span<const std::byte> bytes,
                                              const std::string& file_name) {
  LAYA_ASSIGN(const std::string_view text, header_text(bytes, file_name));
  LAYA_ASSIGN(const Json header, parse_header(text, file_name));
  const auto data = bytes.subspan(kLengthBytes + text.size());
  std::vector<Tensor> tensors;
  for (const auto& [name, entry] : header.items()) {  // sorted by name
    if (name == "__metadata__") continue;
    LAYA_ASSIGN(Tensor tensor, read_tensor(name, entry, data, file_name));
    tensors.push_back(std::move(tensor));
  }
  LAYA_TRY(check_coverage(tensors, data, file_name));
  return tensors;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  LAYA_ASSIGN(file.mapping_, FileMapping::open(path));
  LAYA_ASSIGN(file.tensors_, parse_safetensors(file.mapping_.bytes(), path.string()));
  return file;
}

const Tensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const Tensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

}  // namespace laya::model
