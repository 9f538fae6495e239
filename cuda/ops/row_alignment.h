#pragma once

#include <cstdint>

#include "skrull/core/tensor.h"

namespace skrull {

/// The alignment in bytes of every row of a matrix, at most 256.
inline std::uint32_t row_alignment(const ConstTensorView& matrix) {
  const auto address = reinterpret_cast<std::uintptr_t>(matrix.data());
  const auto stride = static_cast<std::uintptr_t>(matrix.row_stride() * size_of(matrix.dtype()));
  const std::uintptr_t bits = address | stride | 256U;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

}  // namespace skrull
