#include "step_work.h"

#include <map>

namespace skrull {
namespace {

RingKernels ring_kernels(const std::vector<int>& ranks, const std::vector<std::int64_t>& sequences, int replica,
                         const Plan& plan, const CostModel& cost) {
  RingKernels ring;
  ring.ranks = ranks;
  ring.sequences = sequences;
  const auto size = static_cast<int>(ranks.size());
  std::vector<double> attention(ranks.size());
  std::vector<double> sum(ranks.size());
  double bytes = 0.0;
  for (const std::int64_t sequence : sequences) {
    const std::int64_t length = plan.lengths[static_cast<std::size_t>(sequence)];
    cost.attention_forward(length, size, attention);
    for (std::size_t position = 0; position < ranks.size(); ++position) sum[position] += attention[position];
    bytes += cost.hop_bytes(length, size);
  }
  ring.hops = cost.ring_hops(size, bytes, ring_link(ranks, replica, plan.topology));
  // The zigzag gives every step the same number of query-key pairs: a ring's kernels divide evenly into its steps.
  for (const double forward : sum) {
    const RingTime time = cost.ring_time(ring.hops, forward);
    ring.step_forward.push_back(time.compute_forward / size);
    ring.step_backward.push_back(time.compute_backward / size);
  }
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
  std::map<std::vector<int>, std::vector<std::int64_t>> groups;
  for (const DistributedSequence& distributed : micro_batch.distributed) {
    kernels.empty = false;
    groups[distributed.ranks].push_back(distributed.sequence);
    const std::int64_t length = plan.lengths[static_cast<std::size_t>(distributed.sequence)];
    const auto size = static_cast<int>(distributed.ranks.size());
    for (int position = 0; position < size; ++position) {
      const int rank = distributed.ranks[static_cast<std::size_t>(position)];
      tokens[static_cast<std::size_t>(rank)] += zigzag_shard_length(length, size, position);
    }
  }
  for (const auto& [ranks, sequences] : groups) {
    for (std::size_t position = 0; position < ranks.size(); ++position) {
      kernels.ranks[static_cast<std::size_t>(ranks[position])].seats.push_back({kernels.rings.size(), position});
    }
    kernels.rings.push_back(ring_kernels(ranks, sequences, replica, plan, cost));
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
