#pragma once
// What every communicator demands of its arguments.

#include <cstdint>
#include <span>

#include "skrull/comm/communicator.h"
#include "skrull/core/tensor.h"

namespace skrull {

/// Throws RunFailure unless `buffer` is contiguous and of a dtype that can be reduced.
void check_reduce(ConstTensorView buffer);

/// One rank's place in a buffer that holds counts[0], counts[1], ... elements back to back.
struct CountedBuffer {
  std::int64_t total = 0;      ///< elements of all ranks
  std::int64_t own_begin = 0;  ///< first element of this rank's part
  std::int64_t own_count = 0;
};

/// Throws RunFailure unless there is one non-negative count per rank.
CountedBuffer check_counts(std::span<const std::int64_t> counts, int rank, int size);

/// reduce_scatter_sum(): also checks shapes, dtypes and contiguity.
CountedBuffer check_reduce_scatter(ConstTensorView send, ConstTensorView receive, std::span<const std::int64_t> counts,
                                   int rank, int size);
/// all_gather(): also checks shapes, dtypes, contiguity, and that `send` does not overlap another rank's place.
CountedBuffer check_all_gather(ConstTensorView send, ConstTensorView receive, std::span<const std::int64_t> counts,
                               int rank, int size);
void check_broadcast(ConstTensorView buffer, int root, int size);
void check_exchange(std::span<const Transfer> transfers, int size);

}  // namespace skrull
