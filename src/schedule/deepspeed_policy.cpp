// Policy "deepspeed": the Skrull paper's baseline, context parallelism as DeepSpeed users run it. A distributed sampler
// deals sequence k of the global batch to replica k mod DP; one sequence per micro-batch, sharded over all CP ranks.
// The paper does not say how many sequences its baseline's micro-batches hold; its memory figures suggest one or few.

#include "policies.h"
#include "replica_dealing.h"
#include "whole_group.h"

namespace skrull {

ReplicaMicroBatches deepspeed_policy(const PolicyInput& input) {
  const ScheduleRequest& request = input.request;
  ReplicaMicroBatches planned;
  for (const auto& sequences :
       deal_cyclically(static_cast<std::int64_t>(request.lengths.size()), request.topology.data_parallel)) {
    planned.push_back(one_sequence_each(sequences, request.topology.context_parallel));
  }
  return planned;
}

}  // namespace skrull
