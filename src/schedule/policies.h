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

// What each one does stands at the head of its file.
ReplicaMicroBatches deepspeed_policy(const PolicyInput& input);
ReplicaMicroBatches sorted_policy(const PolicyInput& input);
ReplicaMicroBatches packed_policy(const PolicyInput& input);
ReplicaMicroBatches packed_balanced_policy(const PolicyInput& input);
ReplicaMicroBatches round_robin_policy(const PolicyInput& input);
ReplicaMicroBatches skrull_paper_policy(const PolicyInput& input);

/// Descending by predicted time, smallest ring below a target height, local search. See src/schedule/skrull.
ReplicaMicroBatches skrull_policy(const PolicyInput& input);

}  // namespace skrull
