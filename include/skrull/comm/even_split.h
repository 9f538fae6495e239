#pragma once
// Even split of n elements over ranks, no divisibility asked: the first n mod ranks parts are one element longer.

#include <cstdint>
#include <vector>

#include "skrull/core/error.h"

namespace skrull {

/// Elements [begin, begin + count).
struct Part {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t end() const { return begin + count; }
};

/// Part `rank` of `elements` over `ranks`. Parts follow each other in rank order and cover everything; some are empty
/// when there are fewer elements than ranks.
inline Part even_part(std::int64_t elements, int ranks, int rank) {
  require(elements >= 0 && ranks >= 1 && rank >= 0 && rank < ranks, "part {} of {} of {} elements", rank, ranks,
          elements);
  const std::int64_t base = elements / ranks;
  const std::int64_t longer = elements % ranks;
  return {rank * base + (rank < longer ? rank : longer), base + (rank < longer ? 1 : 0)};
}

/// The counts of all parts, in rank order.
inline std::vector<std::int64_t> even_counts(std::int64_t elements, int ranks) {
  std::vector<std::int64_t> counts;
  counts.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) counts.push_back(even_part(elements, ranks, rank).count);
  return counts;
}

}  // namespace skrull
