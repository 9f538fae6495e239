#pragma once
// World = data parallel x context parallel; rank = dp * CP + cp.

#include <cstdint>

namespace skrull {

struct RankGrid {
  int data_parallel = 1;     ///< number of replicas
  int context_parallel = 1;  ///< ranks of one replica
  int data_rank = 0;         ///< which replica this rank belongs to
  int context_rank = 0;      ///< place within the replica

  int world_size() const { return data_parallel * context_parallel; }
  int rank() const { return data_rank * context_parallel + context_rank; }
};

/// Throws InvalidInput when context_parallel does not divide world_size (names both and the divisors).
RankGrid make_rank_grid(int world_size, int rank, int context_parallel);

}  // namespace skrull
