#include <algorithm>

#include "ring_groups.h"
#include "skrull/schedule/cost_model.h"

namespace skrull {
namespace {

/// What a rank has to compute in one micro-batch, before it is turned into time.
struct RankWork {
  std::int64_t tokens = 0;
  std::int64_t causal_area = 0;
  bool has_local = false;
  double local_forward = 0.0;
  std::vector<RingLoad> rings;
};

std::vector<RankWork> work_of(const Plan& plan, int replica, const PlannedMicroBatch& micro_batch,
                              const CostModel& cost) {
  const auto length_of = [&](std::int64_t sequence) { return plan.lengths[static_cast<std::size_t>(sequence)]; };
  std::vector<RankWork> work(static_cast<std::size_t>(plan.topology.context_parallel));
  for (std::size_t index = 0; index < micro_batch.local.size(); ++index) {
    RankWork& rank = work[index];
    rank.has_local = !micro_batch.local[index].empty();
    for (const std::int64_t sequence : micro_batch.local[index]) {
      const std::int64_t length = length_of(sequence);
      rank.tokens += length;
      rank.causal_area += causal_area(length);
      rank.local_forward += cost.attention_forward(length, 1, 0);
    }
  }
  for (const RingGroup& group : ring_groups(plan, replica, micro_batch, cost)) {
    const auto size = static_cast<int>(group.ranks.size());
    for (int position = 0; position < size; ++position) {
      const auto at = static_cast<std::size_t>(position);
      RankWork& rank = work[static_cast<std::size_t>(group.ranks[at])];
      rank.rings.push_back({size, group.attention_forward[at], group.hop_bytes, group.link});
      for (const std::int64_t sequence : group.sequences) {
        rank.tokens += zigzag_shard_length(length_of(sequence), size, position);
        rank.causal_area += zigzag_causal_area(length_of(sequence), size, position);
      }
    }
  }
  return work;
}

/// Ring bytes a rank sends: K and V of every forward hop and again with every backward hop, fp32 dK and dV of r hops.
double sent_bytes(const RankWork& rank, const CostModel& cost) {
  double bytes = 0.0;
  for (const RingLoad& ring : rank.rings) {
    const double passes = cost.forward_passes() + 1.0;
    bytes += (passes * (ring.size - 1) + 2.0 * ring.size) * ring.hop_bytes;
  }
  return bytes * static_cast<double>(cost.model().num_layers);
}

}  // namespace

Link ring_link(std::span<const int> ranks, int replica, const Topology& topology) {
  // Ranks ascend, and nodes hold consecutive ones: all lie on one node when the first and the last do.
  const bool one_node = topology.node_of(replica, ranks.front()) == topology.node_of(replica, ranks.back());
  return one_node ? Link::intra_node : Link::inter_node;
}

PlanCost evaluate_plan(const Plan& plan, const CostModel& cost) {
  PlanCost result;
  double transfer = 0.0;
  double exposed = 0.0;
  for (std::size_t replica = 0; replica < plan.micro_batches.size(); ++replica) {
    auto& seconds = result.micro_batch_seconds.emplace_back();
    auto& loads = result.rank_loads.emplace_back();
    double total = 0.0;
    for (const PlannedMicroBatch& micro_batch : plan.micro_batches[replica]) {
      double slowest = 0.0;
      auto& ranks = loads.emplace_back();
      for (const RankWork& work : work_of(plan, static_cast<int>(replica), micro_batch, cost)) {
        const RankTime time = cost.rank_time(work.tokens, work.has_local, work.local_forward, work.rings);
        ranks.push_back({work.tokens, work.causal_area, sent_bytes(work, cost), time});
        slowest = std::max(slowest, time.total);
        transfer += time.transfer;
        exposed += time.exposed_transfer;
        result.peak_tokens = std::max(result.peak_tokens, work.tokens);
      }
      if (is_empty(micro_batch)) slowest = 0.0;  // a replica that has no more waits; it does not compute
      seconds.push_back(slowest);
      total += slowest;
      result.distributed_sequences += static_cast<std::int64_t>(micro_batch.distributed.size());
    }
    result.replica_seconds.push_back(total);
    result.schedule_seconds = std::max(result.schedule_seconds, total);
  }
  result.step_seconds = result.schedule_seconds + cost.gradient_sync_seconds();
  result.hidden_share = transfer > 0.0 ? 1.0 - exposed / transfer : 1.0;
  return result;
}

double schedule_seconds(const Plan& plan, const CostModel& cost) {
  return evaluate_plan(plan, cost).schedule_seconds;
}

}  // namespace skrull
