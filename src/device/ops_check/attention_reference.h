#pragma once
// Attention in fp64, straight from the definition.

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/device/ops.h"

namespace skrull {

/// A matrix of sums, row by row: their values, and the sums of their terms' magnitudes.
struct ReferenceSums {
  std::vector<double> values;
  std::vector<double> sizes;
};

struct AttentionReference {
  ReferenceSums out, dq, dk, dv;
  std::vector<double> lse, delta;  ///< [Tq, nq]; -infinity and 0 of rows without keys
  /// The largest sum of |scale q_c k_c| over a head's columns: the rounding of scores is relative to it.
  double score_size = 0;
};

/// Value of element (row, col) of a view in host memory, float32 or bfloat16.
double value_at(ConstTensorView x, std::int64_t row, std::int64_t col);

/// All elements of such a view, row by row.
std::vector<double> values_of(ConstTensorView x);

/// Softmax attention and its gradient for every row, key by key: o = sum p v, p = softmax(scale q.k);
/// dv = p do, ds = p (do.v - do.o), dq = scale ds k, dk = scale ds q. Rows in no segment are 0.
AttentionReference attention_reference(const AttentionShape& shape, std::span<const AttentionSegment> segments,
                                       ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView dout);

}  // namespace skrull
