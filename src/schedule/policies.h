#pragma once
// The policies behind make_plan. Each one is a pure function in a file of its own.

#include "skrull/schedule/scheduler.h"

namespace skrull {

/// [replica][micro-batch]; replicas may have different numbers, make_plan evens them out with empty ones.
using ReplicaMicroBatches = std::vector<std::vector<PlannedMicroBatch>>;

/// What a policy plans by. `request` has passed make_plan's checks.
struct PolicyInput {
  const ScheduleRequest& request;
  const CostModel& cost;
  const SearchOptions& search;
};

/// Sequences in arrival order, each to the replica with the fewest tokens so far, there into the first micro-batch with
/// room for its zigzag shards over all CP ranks.
ReplicaMicroBatches packed_policy(const PolicyInput& input);

/// Descending by predicted time, smallest ring below a target height, local search. See src/schedule/skrull.
ReplicaMicroBatches skrull_policy(const PolicyInput& input);

}  // namespace skrull
