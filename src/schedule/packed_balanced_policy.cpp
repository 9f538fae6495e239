// Policy "packed-balanced": as "packed", but replicas are balanced first: sequences by descending predicted cost, each
// to the replica with the least cost so far; then first fit in arrival order. What balancing over replicas alone is
// worth.

#include "policies.h"
#include "replica_dealing.h"
#include "whole_group.h"

namespace skrull {
namespace {

/// Seconds over all ranks that a sequence adds to full micro-batches that shard it over the whole group.
std::vector<double> packed_costs(const PolicyInput& input) {
  const ScheduleRequest& request = input.request;
  const double linear_per_token = input.cost.linear_seconds_per_token(request.bucket_tokens);
  std::vector<double> costs;
  costs.reserve(request.lengths.size());
  for (const std::int64_t length : request.lengths) {
    costs.push_back(static_cast<double>(length) * linear_per_token +
                    input.cost.attention_work(length, request.topology.context_parallel));
  }
  return costs;
}

}  // namespace

ReplicaMicroBatches packed_balanced_policy(const PolicyInput& input) {
  ReplicaMicroBatches planned;
  for (const auto& sequences : deal_by_cost(packed_costs(input), input.request.topology.data_parallel)) {
    planned.push_back(pack_first_fit(input.request, sequences));
  }
  return planned;
}

}  // namespace skrull
