#pragma once
// fp32 from and to the float formats of weight files, on the host, in parallel.

#include <cstdint>
#include <span>

#include "skrull/core/dtype.h"

namespace skrull {

/// float32, bfloat16 or float16: what weights may be stored as.
bool is_weight_dtype(DType dtype);

/// `source` holds target.size() elements of `dtype`, not aligned.
void convert_to_float(DType dtype, std::span<const char> source, std::span<float> target);

/// Rounds to nearest even. `target` holds source.size() elements of `dtype`.
void convert_from_float(DType dtype, std::span<const float> source, std::span<char> target);

}  // namespace skrull
