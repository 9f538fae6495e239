#pragma once
// The scheduling policies: each turns a checked request into the micro-batches of every replica.

#include <vector>

#include "skrull/schedule/plan.h"

namespace skrull {

/// [replica][micro-batch]; replicas may have different numbers of micro-batches, make_plan() evens them out.
using ReplicaMicroBatches = std::vector<std::vector<PlannedMicroBatch>>;

/// Arrival order. Each sequence goes to the replica with the fewest tokens so far (the first of equals), so that every
/// replica has work as soon as there are as many sequences as replicas; there it goes into the first micro-batch with
/// room. One CP rank holds sequences whole; several share every sequence, the usual way to run context parallelism.
ReplicaMicroBatches packed_policy(const ScheduleRequest& request);

}  // namespace skrull
