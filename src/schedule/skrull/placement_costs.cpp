#include "placement_costs.h"

#include <algorithm>

namespace skrull {

PlacementCosts::PlacementCosts(const ScheduleRequest& request, const CostModel& cost)
    : request_(request), cost_(cost), class_length_(request.lengths) {
  std::sort(class_length_.begin(), class_length_.end());
  class_length_.erase(std::unique(class_length_.begin(), class_length_.end()), class_length_.end());
  class_of_sequence_.reserve(request.lengths.size());
  for (const std::int64_t length : request.lengths) {
    const auto at = std::lower_bound(class_length_.begin(), class_length_.end(), length);
    class_of_sequence_.push_back(static_cast<int>(at - class_length_.begin()));
  }
  least_ring_.reserve(class_length_.size());
  for (const std::int64_t length : class_length_) {
    least_ring_.push_back(smallest_ring(length, request.topology.context_parallel, request.bucket_tokens));
  }
  shards_.resize(class_length_.size());
}

const ShardCosts& PlacementCosts::compute_shards(int sequence, int ring_size) const {
  const auto index = static_cast<std::size_t>(length_class(sequence));
  const auto size = static_cast<std::size_t>(ring_size);
  const std::int64_t length = class_length_[index];
  auto shards = std::make_unique<ShardCosts>();
  shards->attention_forward.resize(size);
  cost_.attention_forward(length, ring_size, shards->attention_forward);
  for (int position = 0; position < ring_size; ++position) {
    shards->tokens.push_back(zigzag_shard_length(length, ring_size, position));
  }
  shards->most_tokens = *std::max_element(shards->tokens.begin(), shards->tokens.end());
  shards->hop_bytes = cost_.hop_bytes(length, ring_size);
  auto& by_size = shards_[index];
  if (by_size.size() <= size) by_size.resize(size + 1);
  by_size[size] = std::move(shards);
  return *by_size[size];
}

}  // namespace skrull
