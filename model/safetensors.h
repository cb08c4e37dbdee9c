// Reader of the safetensors format: an 8-byte little-endian header length, a JSON header that maps
// names to dtype, shape and byte range, then the data. The file is mapped, not read; nothing in it
// is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/result.h"
#include "model/dtype.h"

namespace laya::model {

/// A read-only mapping of a file; unmapped on destruction. Movable, empty by default.
/// The file must not be shortened while it is mapped.
class FileMapping {
 public:
  static Result<FileMapping> open(const std::filesystem::path& path);

  FileMapping() = default;
  FileMapping(FileMapping&& other) noexcept { swap(other); }
  FileMapping& operator=(FileMapping&& other) noexcept;
  ~FileMapping();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  void swap(FileMapping& other) noexcept;

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct Tensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  ///< into the mapping; not aligned to the element's size

  int64_t elements() const;
};

/// "[2, 3]"
std::string shape_to_string(std::span<const int64_t> shape);

/// Immutable and thread-safe. Tensors point into it.
class SafetensorsFile {
 public:
  /// Errors are kBadInput and name the file and the tensor or the offset: truncated file, header
  /// beyond the file or above 100 MB, no JSON, nested too deep, duplicate name, unknown dtype,
  /// shape that does not fit the byte range, ranges that overlap, leave a gap or end outside the
  /// file.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  /// Sorted by name.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// nullptr if there is none of that name.
  const Tensor* find(std::string_view name) const;

 private:
  FileMapping mapping_;
  std::vector<Tensor> tensors_;
};

/// Reads the header of a file whose whole content is `bytes`; `file_name` is for messages.
Result<std::vector<Tensor>> parse_safetensors(std::span<const std::byte> bytes,
                                              const std::string& file_name);

}  // namespace laya::model
