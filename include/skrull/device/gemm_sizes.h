#pragma once

#include <cstdint>

#include "skrull/device/ops.h"

namespace skrull {

/// C[m,n] = op(A)[m,k] op(B)[k,n].
struct GemmSizes {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// Throws RunFailure when shapes or dtypes don't fit each other.
GemmSizes check_gemm(const Gemm& gemm);

}  // namespace skrull
