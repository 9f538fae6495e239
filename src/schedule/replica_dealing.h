#pragma once
// Which replica gets which sequences of a global batch.

#include <cstdint>
#include <span>
#include <vector>

namespace skrull {

/// [replica]: indices of its sequences, ascending (arrival order).
using ReplicaSequences = std::vector<std::vector<std::int64_t>>;

/// Contiguous blocks of equal size; the first (sequences mod replicas) hold one more.
ReplicaSequences deal_in_blocks(std::int64_t sequences, int replicas);

/// Sequence k to replica k mod replicas.
ReplicaSequences deal_cyclically(std::int64_t sequences, int replicas);

/// Longest-processing-time rule (Graham 1969): costliest sequence first, each to the replica with the least cost so
/// far. Ties go to the earlier sequence and to the lower replica. `costs`: one per sequence, in any unit.
ReplicaSequences deal_by_cost(std::span<const double> costs, int replicas);

}  // namespace skrull
