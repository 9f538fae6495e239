#include "step_work.h"

#include <utility>

#include "ring_groups.h"

namespace skrull {
namespace {

RingKernels ring_kernels(RingGroup group, const CostModel& cost) {
  RingKernels ring;
  const auto size = static_cast<int>(group.ranks.size());
  ring.hops = cost.ring_hops(size, group.hop_bytes, group.link);
  // The zigzag gives every step the same number of query-key pairs: a ring's kernels divide evenly into its steps.
  for (const double forward : group.attention_forward) {
    const RingTime time = cost.ring_time(ring.hops, forward);
    ring.step_forward.push_back(time.compute_forward / size);
    ring.step_backward.push_back(time.compute_backward / size);
  }
  ring.ranks = std::move(group.ranks);
  ring.sequences = std::move(group.sequences);
  return ring;
}

}  // namespace

MicroBatchKernels micro_batch_kernels(const Plan& plan, int replica, const PlannedMicroBatch& micro_batch,
                                      const CostModel& cost) {
  MicroBatchKernels kernels;
  kernels.ranks.resize(static_cast<std::size_t>(plan.topology.context_parallel));
  std::vector<std::int64_t> tokens(kernels.ranks.size());
  const LayerOverhead& overhead = cost.profile().overhead;
  for (std::size_t rank = 0; rank < micro_batch.local.size(); ++rank) {
    if (micro_batch.local[rank].empty()) continue;
    kernels.empty = false;
    double attention = 0.0;
    for (const std::int64_t sequence : micro_batch.local[rank]) {
      const std::int64_t length = plan.lengths[static_cast<std::size_t>(sequence)];
      tokens[rank] += length;
      attention += cost.attention_forward(length, 1, 0);
    }
    kernels.ranks[rank].local_forward = attention + overhead.local_attention_forward_s;
    kernels.ranks[rank].local_backward =
        CostFactors::backward_attention * attention + overhead.local_attention_backward_s;
  }
  for (RingGroup& group : ring_groups(plan, replica, micro_batch, cost)) {
    kernels.empty = false;
    const auto size = static_cast<int>(group.ranks.size());
    for (int position = 0; position < size; ++position) {
      const auto at = static_cast<std::size_t>(position);
      const auto rank = static_cast<std::size_t>(group.ranks[at]);
      kernels.ranks[rank].seats.push_back({kernels.rings.size(), at});
      for (const std::int64_t sequence : group.sequences) {
        tokens[rank] += zigzag_shard_length(plan.lengths[static_cast<std::size_t>(sequence)], size, position);
      }
    }
    kernels.rings.push_back(ring_kernels(std::move(group), cost));
  }
  for (std::size_t rank = 0; rank < kernels.ranks.size(); ++rank) {
    RankKernels& of_rank = kernels.ranks[rank];
    of_rank.linear_forward = cost.linear_forward(tokens[rank]);
    of_rank.linear_backward = CostFactors::backward_linear * of_rank.linear_forward;
    of_rank.head = (1.0 + CostFactors::backward_linear) * cost.head_forward(tokens[rank]);
  }
  return kernels;
}

}  // namespace skrull
