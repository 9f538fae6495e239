#pragma once
// Policies side by side over several global batches.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/schedule/scheduler.h"

namespace skrull {

/// One policy's plans of several global batches. Times are means over the batches, so ratios of two policies'
/// schedule_seconds are speed-ups over the whole of the data.
struct PolicySummary {
  std::string policy;
  double schedule_seconds = 0.0;    ///< predicted, per global batch
  double step_seconds = 0.0;        ///< the same with the exposed gradient synchronisation
  double mean_gap = 0.0;            ///< of schedule_seconds / lower bound - 1
  double worst_gap = 0.0;           ///< of one batch
  double micro_batches = 0.0;       ///< with sequences, over all replicas
  double distributed_share = 0.0;   ///< of the sequences
  double hidden_share = 1.0;        ///< of the rings' transfer time
  std::int64_t peak_tokens = 0;     ///< of a rank in a micro-batch, over all batches
  double scheduling_seconds = 0.0;  ///< to make a plan, on this machine
  double median_scheduling = 0.0;
  double longest_scheduling = 0.0;  ///< seconds of one plan
};

/// Plans every batch of lengths by every policy of `policies`. "sorted" first regroups the batches by sorted_batches
/// (seed 0), because it chooses which sequences form a batch; its gaps are to the bounds of those. `topology` and
/// `bucket_tokens` as in ScheduleRequest; throws what make_plan throws.
std::vector<PolicySummary> compare_policies(const std::vector<std::string>& policies,
                                            const std::vector<std::vector<std::int64_t>>& batches,
                                            const Topology& topology, std::int64_t bucket_tokens, const CostModel& cost,
                                            const SearchOptions& search = {});

}  // namespace skrull
