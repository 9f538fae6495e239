#pragma once
// Sums and maxima of several contributions in a fixed order: what makes reductions the same bits for any number of
// chunks and on every rank.

#include <cstdint>
#include <span>

#include "skrull/core/dtype.h"

namespace skrull {

enum class ReduceOp { sum, max };

/// target[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ... for `elements` elements of float32, float64 or
/// int64. `target` may be one of the sources, at the same place. A NaN wins a maximum. Throws RunFailure for another
/// dtype.
void reduce_in_order(ReduceOp op, DType dtype, std::span<const void* const> sources, void* target,
                     std::int64_t elements);

/// Throws RunFailure unless reductions work on `dtype`.
void require_reducible(DType dtype);

}  // namespace skrull
