#include <algorithm>
#include <map>

#include "skrull/core/error.h"
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

/// All sequences of a micro-batch that share a ring.
struct RingGroup {
  std::vector<double> attention_forward;  ///< per position
  double hop_bytes = 0.0;
};

class MicroBatchEvaluator {
 public:
  MicroBatchEvaluator(const Plan& plan, const CostModel& cost) : plan_(plan), cost_(cost) {}

  std::vector<RankWork> work_of(const PlannedMicroBatch& micro_batch, int replica) const {
    std::vector<RankWork> work(static_cast<std::size_t>(plan_.topology.context_parallel));
    for (std::size_t rank = 0; rank < micro_batch.local.size(); ++rank) {
      for (const std::int64_t sequence : micro_batch.local[rank]) add_local(work[rank], length_of(sequence));
    }
    std::map<std::vector<int>, RingGroup> groups;
    for (const DistributedSequence& distributed : micro_batch.distributed) {
      add_distributed(work, groups[distributed.ranks], distributed);
    }
    for (const auto& [ranks, group] : groups) {
      const Link link = ring_link(ranks, replica, plan_.topology);
      for (std::size_t position = 0; position < ranks.size(); ++position) {
        work[static_cast<std::size_t>(ranks[position])].rings.push_back(
            {static_cast<int>(ranks.size()), group.attention_forward[position], group.hop_bytes, link});
      }
    }
    return work;
  }

 private:
  std::int64_t length_of(std::int64_t sequence) const { return plan_.lengths[static_cast<std::size_t>(sequence)]; }

  void add_local(RankWork& rank, std::int64_t length) const {
    rank.tokens += length;
    rank.causal_area += causal_area(length);
    rank.has_local = true;
    rank.local_forward += cost_.attention_forward(length, 1, 0);
  }

  void add_distributed(std::vector<RankWork>& work, RingGroup& group, const DistributedSequence& distributed) const {
    const std::int64_t length = length_of(distributed.sequence);
    const int size = static_cast<int>(distributed.ranks.size());
    group.attention_forward.resize(distributed.ranks.size());
    group.hop_bytes += cost_.hop_bytes(length, size);
    std::vector<double> attention(distributed.ranks.size());
    cost_.attention_forward(length, size, attention);
    for (int position = 0; position < size; ++position) {
      const auto at = static_cast<std::size_t>(position);
      RankWork& rank = work[static_cast<std::size_t>(distributed.ranks[at])];
      rank.tokens += zigzag_shard_length(length, size, position);
      rank.causal_area += zigzag_causal_area(length, size, position);
      group.attention_forward[at] += attention[at];
    }
  }

  const Plan& plan_;
  const CostModel& cost_;
};

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
  const std::int64_t base = std::int64_t{replica} * topology.context_parallel;
  const auto node = [&](int rank) { return (base + rank) / topology.ranks_per_node; };
  const bool one_node = node(ranks.front()) == node(ranks.back());  // ranks ascend
  return one_node ? Link::intra_node : Link::inter_node;
}

PlanCost evaluate_plan(const Plan& plan, const CostModel& cost) {
  PlanCost result;
  const MicroBatchEvaluator evaluator(plan, cost);
  double transfer = 0.0;
  double exposed = 0.0;
  for (std::size_t replica = 0; replica < plan.micro_batches.size(); ++replica) {
    auto& seconds = result.micro_batch_seconds.emplace_back();
    auto& loads = result.rank_loads.emplace_back();
    double total = 0.0;
    for (const PlannedMicroBatch& micro_batch : plan.micro_batches[replica]) {
      double slowest = 0.0;
      auto& ranks = loads.emplace_back();
      for (const RankWork& work : evaluator.work_of(micro_batch, static_cast<int>(replica))) {
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
