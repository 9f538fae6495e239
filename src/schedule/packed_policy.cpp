// Policy "packed": the plain way to avoid padding, and the fair baseline. As a data loader deals them, each replica
// takes a contiguous block of the global batch in arrival order; first fit into micro-batches of bucket_tokens x CP
// ranks, every sequence sharded over all CP ranks. Not in the Skrull paper; what Megatron-LM and others call sequence
// packing.

#include "policies.h"
#include "replica_dealing.h"
#include "whole_group.h"

namespace skrull {

ReplicaMicroBatches packed_policy(const PolicyInput& input) {
  const ScheduleRequest& request = input.request;
  ReplicaMicroBatches planned;
  for (const auto& sequences :
       deal_in_blocks(static_cast<std::int64_t>(request.lengths.size()), request.topology.data_parallel)) {
    planned.push_back(pack_first_fit(request, sequences));
  }
  return planned;
}

}  // namespace skrull
