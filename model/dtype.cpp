#include "model/dtype.h"

#include <string>

namespace laya::model {

int size_of(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "fp32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "fp16";
  }
  return "unknown";
}

Result<DType> parse_dtype(std::string_view word) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (word == to_string(dtype)) return dtype;
  }
  return fail(ErrorKind::kBadInput,
              "dtype '" + std::string(word) + "' is not one of fp32, bf16, fp16");
}

}  // namespace laya::model
