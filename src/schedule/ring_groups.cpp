#include "ring_groups.h"

#include <map>

namespace skrull {

std::vector<RingGroup> ring_groups(const Plan& plan, int replica, const PlannedMicroBatch& micro_batch,
                                   const CostModel& cost) {
  std::map<std::vector<int>, RingGroup> by_ranks;
  std::vector<double> attention;
  for (const DistributedSequence& distributed : micro_batch.distributed) {
    RingGroup& group = by_ranks[distributed.ranks];
    const std::int64_t length = plan.lengths[static_cast<std::size_t>(distributed.sequence)];
    const auto size = static_cast<int>(distributed.ranks.size());
    attention.resize(distributed.ranks.size());
    cost.attention_forward(length, size, attention);
    group.attention_forward.resize(distributed.ranks.size());
    for (std::size_t position = 0; position < attention.size(); ++position) {
      group.attention_forward[position] += attention[position];
    }
    group.hop_bytes += cost.hop_bytes(length, size);
    group.sequences.push_back(distributed.sequence);
  }
  std::vector<RingGroup> groups;
  groups.reserve(by_ranks.size());
  for (auto& [ranks, group] : by_ranks) {
    group.ranks = ranks;
    group.link = ring_link(ranks, replica, plan.topology);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace skrull
