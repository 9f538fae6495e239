#pragma once
// LongAlign's choice of batches, for comparisons over several global batches.

#include <cstdint>
#include <vector>

namespace skrull {

/// Regroups the lengths of several global batches: pool them, sort them, cut the pool into consecutive batches of the
/// given sizes, shuffle the batches by `seed`. The result holds the same lengths and as many batches. (Bai et al. 2024,
/// LongAlign: sorted batching.)
std::vector<std::vector<std::int64_t>> sorted_batches(const std::vector<std::vector<std::int64_t>>& batches,
                                                      std::uint64_t seed);

}  // namespace skrull
