#include "replica_dealing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace skrull {

ReplicaSequences deal_in_blocks(std::int64_t sequences, int replicas) {
  ReplicaSequences dealt(static_cast<std::size_t>(replicas));
  std::int64_t next = 0;
  for (int replica = 0; replica < replicas; ++replica) {
    const std::int64_t count = sequences / replicas + (replica < sequences % replicas ? 1 : 0);
    auto& block = dealt[static_cast<std::size_t>(replica)];
    block.resize(static_cast<std::size_t>(count));
    std::iota(block.begin(), block.end(), next);
    next += count;
  }
  return dealt;
}

ReplicaSequences deal_cyclically(std::int64_t sequences, int replicas) {
  ReplicaSequences dealt(static_cast<std::size_t>(replicas));
  for (std::int64_t k = 0; k < sequences; ++k) dealt[static_cast<std::size_t>(k % replicas)].push_back(k);
  return dealt;
}

ReplicaSequences deal_by_cost(std::span<const double> costs, int replicas) {
  std::vector<std::size_t> costliest_first(costs.size());
  std::iota(costliest_first.begin(), costliest_first.end(), 0);
  std::stable_sort(costliest_first.begin(), costliest_first.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  using Load = std::pair<double, std::size_t>;  // cost so far, replica
  std::priority_queue<Load, std::vector<Load>, std::greater<>> lightest_first;
  for (std::size_t replica = 0; replica < static_cast<std::size_t>(replicas); ++replica) {
    lightest_first.push({0.0, replica});
  }
  ReplicaSequences dealt(static_cast<std::size_t>(replicas));
  for (const std::size_t sequence : costliest_first) {
    const auto [load, replica] = lightest_first.top();
    lightest_first.pop();
    lightest_first.push({load + costs[sequence], replica});
    dealt[replica].push_back(static_cast<std::int64_t>(sequence));
  }
  for (auto& sequences : dealt) std::sort(sequences.begin(), sequences.end());
  return dealt;
}

}  // namespace skrull
