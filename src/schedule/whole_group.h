#pragma once
// Micro-batches whose sequences all lie on the whole context-parallel group.

#include <cstdint>
#include <span>
#include <vector>

#include "skrull/schedule/plan.h"

namespace skrull {

/// Adds a sequence on all CP ranks: in zigzag shards, or whole where there is one rank only.
void add_on_whole_group(PlannedMicroBatch& micro_batch, std::int64_t sequence);

/// Micro-batches of one sequence each, in the order given.
std::vector<PlannedMicroBatch> one_sequence_each(std::span<const std::int64_t> sequences, int context_parallel);

/// First fit: each sequence, in the order given, into the first micro-batch where no rank's zigzag shards exceed
/// bucket_tokens, else into a new one.
std::vector<PlannedMicroBatch> pack_first_fit(const ScheduleRequest& request, std::span<const std::int64_t> sequences);

}  // namespace skrull
