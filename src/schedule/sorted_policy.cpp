// Policy "sorted": sorted batching of LongAlign (Bai et al. 2024, arXiv 2401.18058) inside one global batch. Sequences
// in descending length, sequence k of that order to replica k mod DP, so that the replicas compute neighbouring lengths
// at the same time; one sequence per micro-batch, sharded over all CP ranks. LongAlign also chooses which sequences
// form a batch: sorted_batches().

#include <algorithm>
#include <numeric>

#include "policies.h"
#include "replica_dealing.h"
#include "skrull/core/rng.h"
#include "skrull/schedule/sorted_batches.h"
#include "whole_group.h"

namespace skrull {

ReplicaMicroBatches sorted_policy(const PolicyInput& input) {
  const ScheduleRequest& request = input.request;
  std::vector<std::int64_t> longest_first(request.lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), 0);
  std::stable_sort(longest_first.begin(), longest_first.end(), [&](std::int64_t a, std::int64_t b) {
    return request.lengths[static_cast<std::size_t>(a)] > request.lengths[static_cast<std::size_t>(b)];
  });
  ReplicaMicroBatches planned;
  for (auto sequences :
       deal_cyclically(static_cast<std::int64_t>(longest_first.size()), request.topology.data_parallel)) {
    for (std::int64_t& sequence : sequences) sequence = longest_first[static_cast<std::size_t>(sequence)];
    planned.push_back(one_sequence_each(sequences, request.topology.context_parallel));
  }
  return planned;
}

std::vector<std::vector<std::int64_t>> sorted_batches(const std::vector<std::vector<std::int64_t>>& batches,
                                                      std::uint64_t seed) {
  std::vector<std::int64_t> pool;
  for (const auto& batch : batches) pool.insert(pool.end(), batch.begin(), batch.end());
  std::sort(pool.begin(), pool.end());
  std::vector<std::vector<std::int64_t>> regrouped;
  regrouped.reserve(batches.size());
  auto next = pool.begin();
  for (const auto& batch : batches) {
    const auto end = next + static_cast<std::ptrdiff_t>(batch.size());
    regrouped.emplace_back(next, end);
    next = end;
  }
  Rng(seed, "sorted batches").shuffle(regrouped);
  return regrouped;
}

}  // namespace skrull
