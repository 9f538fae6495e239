#pragma once
// The second stage of sums over rows: the first stage's kernels leave one row of partial sums for each block of rows.

#include <cstdint>

#include "kernel/kernel.h"

namespace skrull {

/// Partial sums in scratch memory: `count` rows of `cols` floats.
struct PartialSums {
  float* data;
  std::int64_t count;
  std::int64_t cols;
};

/// out[j] += sum of partial[i][j] over i, in an order that depends on `count` alone.
void add_partial_sums(cudaStream_t stream, const PartialSums& partial, float* out);

}  // namespace skrull
