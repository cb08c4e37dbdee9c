// Element types of weights and activations.
#pragma once

#include <cstdint>
#include <string_view>

#include "cache/result.h"

namespace laya::model {

enum class DType : uint8_t { kF32, kBF16, kF16 };

/// Bytes of one element.
int size_of(DType dtype);

/// "fp32", "bf16", "fp16": the words of templates and of the command line.
const char* to_string(DType dtype);

/// The inverse. kBadInput lists the accepted words.
Result<DType> parse_dtype(std::string_view word);

}  // namespace laya::model
