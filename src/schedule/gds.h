#pragma once
// Global data scheduling (GDS) of the Skrull paper (arXiv 2505.19609): one global batch into replicas' micro-batches.

#include "dacp.h"
#include "policies.h"

namespace skrull {

/// Cuts one replica's sequences into micro-batches. Starting from m = ceil(tokens / (bucket_tokens x ranks)),
/// micro-batch j of m takes every m-th sequence of the ascending order from the j-th on; when one of them exceeds
/// bucket_tokens x ranks or DACP fails on it, m grows by one. Ends at the latest with one sequence each. Every sequence
/// must fit the whole ring.
std::vector<PlannedMicroBatch> stride_micro_batches(const DacpProblem& problem, std::vector<std::int64_t> sequences);

/// GDS as printed: replicas by descending FLOPs to the one with the fewest so far, each cut by stride_micro_batches.
/// FLOPs are those of the cost model (exact, or the paper's formula).
ReplicaMicroBatches global_data_schedule(const PolicyInput& input, LocalRule local_rule);

}  // namespace skrull
