#pragma once
// Lengths in, plan out: which rank computes which sequence of a global batch in which micro-batch. Pure data.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "skrull/schedule/zigzag.h"

namespace skrull {

/// World rank = replica x context_parallel + CP rank; nodes hold consecutive world ranks.
struct Topology {
  int data_parallel = 1;
  int context_parallel = 1;
  int ranks_per_node = 1;

  /// The node, counted over the world, of a CP rank of a replica.
  int node_of(int replica, int cp_rank) const {
    return static_cast<int>((std::int64_t{replica} * context_parallel + cp_rank) / ranks_per_node);
  }
};

/// The members of Topology under their names in files.
struct NamedTopologySize {
  const char* name;
  int Topology::*member;
};
inline constexpr std::array topology_sizes{
    NamedTopologySize{"data_parallel", &Topology::data_parallel},
    NamedTopologySize{"context_parallel", &Topology::context_parallel},
    NamedTopologySize{"ranks_per_node", &Topology::ranks_per_node},
};

/// A sequence sharded over a ring of CP ranks (ascending, at least 2).
struct DistributedSequence {
  std::int64_t sequence = 0;  ///< index into the global batch
  std::vector<int> ranks;
};

/// What one replica computes between two synchronisations.
struct PlannedMicroBatch {
  std::vector<std::vector<std::int64_t>> local;  ///< per CP rank: indices of the sequences it holds whole
  std::vector<DistributedSequence> distributed;
};

/// A micro-batch without sequences.
PlannedMicroBatch empty_micro_batch(int context_parallel);

/// Whether no rank has anything to compute.
bool is_empty(const PlannedMicroBatch& micro_batch);

/// Every replica has the same number of micro-batches (empty ones at the end where it has no more).
struct Plan {
  std::string policy;
  Topology topology;
  std::int64_t bucket_tokens = 0;
  std::vector<std::int64_t> lengths;                          ///< of the global batch
  std::vector<std::vector<PlannedMicroBatch>> micro_batches;  ///< [replica][micro-batch]

  std::int64_t micro_batch_count() const {
    return micro_batches.empty() ? 0 : static_cast<std::int64_t>(micro_batches.front().size());
  }
};

/// Tokens of the sequences that lie on rings.
std::int64_t tokens_in_rings(const Plan& plan);

struct ScheduleRequest {
  std::vector<std::int64_t> lengths;  ///< tokens per sequence, each >= 1
  Topology topology;
  std::int64_t bucket_tokens = 0;  ///< most tokens a rank may hold in one micro-batch
};

/// Gives every replica as many micro-batches as the one with the most, by empty ones at the end.
void even_out(Plan& plan);

/// Throws RunFailure naming the rule that `plan` breaks: each sequence exactly once; indices and ranks in range; equal
/// micro-batch counts; tokens per rank and micro-batch within bucket_tokens, with exact zigzag shard sizes for
/// distributed sequences.
void validate_plan(const Plan& plan);

}  // namespace skrull
