#pragma once
// What reader and writer of safetensors files share.

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "skrull/core/dtype.h"

namespace skrull::safetensors {

/// A file begins with the length of its JSON header as a little-endian 64-bit number.
constexpr std::size_t length_bytes = 8;
constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";

constexpr std::array<std::pair<std::string_view, DType>, 7> dtype_names = {{{"F32", DType::float32},
                                                                            {"BF16", DType::bfloat16},
                                                                            {"F16", DType::float16},
                                                                            {"F64", DType::float64},
                                                                            {"I32", DType::int32},
                                                                            {"I64", DType::int64},
                                                                            {"U8", DType::uint8}}};

}  // namespace skrull::safetensors
