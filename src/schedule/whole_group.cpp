#include "whole_group.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace skrull {
namespace {

/// Finds the first of many micro-batches that has some room, in logarithmic time: a binary tree of maxima.
class RoomTree {
 public:
  explicit RoomTree(std::size_t most_leaves)
      : leaves_(std::bit_ceil(std::max<std::size_t>(1, most_leaves))), most_room_(2 * leaves_, no_room) {}

  void set(std::size_t leaf, std::int64_t room) {
    std::size_t node = leaves_ + leaf;
    most_room_[node] = room;
    while (node > 1) {
      node /= 2;
      most_room_[node] = std::max(most_room_[2 * node], most_room_[2 * node + 1]);
    }
  }

  /// The first leaf from `first` on with at least `room` >= 0; the number of leaves when there is none.
  std::size_t find(std::size_t first, std::int64_t room) const {
    if (first >= leaves_) return leaves_;
    std::size_t node = leaves_ + first;
    while (most_room_[node] < room) {
      while (node % 2 == 1) node /= 2;  // a right child has nothing after it below its parent
      if (node == 0) return leaves_;
      ++node;
    }
    while (node < leaves_) node = most_room_[2 * node] >= room ? 2 * node : 2 * node + 1;
    return node - leaves_;
  }

 private:
  static constexpr std::int64_t no_room = -1;
  std::size_t leaves_;
  std::vector<std::int64_t> most_room_;  ///< node 1 is the root, leaf k is node leaves_ + k
};

/// Micro-batches under construction and the tokens that each rank holds in each.
class FirstFit {
 public:
  FirstFit(const ScheduleRequest& request, std::size_t sequences)
      : request_(request),
        ranks_(static_cast<std::size_t>(request.topology.context_parallel)),
        shards_(ranks_),
        room_(sequences) {}

  void add(std::int64_t sequence) {
    const std::int64_t length = request_.lengths[static_cast<std::size_t>(sequence)];
    zigzag_shard_lengths(length, shards_);
    // No shard is below length / ranks; which ranks hold the longer ones, and what they hold already, is checked
    // exactly.
    const std::int64_t least = length / static_cast<std::int64_t>(ranks_);
    std::size_t place = room_.find(0, least);
    while (place < packed_.size() && !fits(place)) place = room_.find(place + 1, least);
    if (place >= packed_.size()) {
      place = packed_.size();
      packed_.push_back(empty_micro_batch(request_.topology.context_parallel));
      tokens_.emplace_back(ranks_);
    }
    add_on_whole_group(packed_[place], sequence);
    std::vector<std::int64_t>& tokens = tokens_[place];
    for (std::size_t rank = 0; rank < ranks_; ++rank) tokens[rank] += shards_[rank];
    room_.set(place, request_.bucket_tokens - *std::max_element(tokens.begin(), tokens.end()));
  }

  std::vector<PlannedMicroBatch> take() { return std::move(packed_); }

 private:
  bool fits(std::size_t place) const {
    const std::vector<std::int64_t>& tokens = tokens_[place];
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (tokens[rank] + shards_[rank] > request_.bucket_tokens) return false;
    }
    return true;
  }

  const ScheduleRequest& request_;
  std::size_t ranks_;
  std::vector<std::int64_t> shards_;  ///< of the sequence to be placed
  std::vector<PlannedMicroBatch> packed_;
  std::vector<std::vector<std::int64_t>> tokens_;
  RoomTree room_;  ///< on the fullest rank of each micro-batch
};

}  // namespace

void add_on_whole_group(PlannedMicroBatch& micro_batch, std::int64_t sequence) {
  if (micro_batch.local.size() == 1) {
    micro_batch.local.front().push_back(sequence);
    return;
  }
  std::vector<int> ring(micro_batch.local.size());
  std::iota(ring.begin(), ring.end(), 0);
  micro_batch.distributed.push_back({sequence, std::move(ring)});
}

std::vector<PlannedMicroBatch> one_sequence_each(std::span<const std::int64_t> sequences, int context_parallel) {
  std::vector<PlannedMicroBatch> micro_batches;
  micro_batches.reserve(sequences.size());
  for (const std::int64_t sequence : sequences) {
    add_on_whole_group(micro_batches.emplace_back(empty_micro_batch(context_parallel)), sequence);
  }
  return micro_batches;
}

std::vector<PlannedMicroBatch> pack_first_fit(const ScheduleRequest& request, std::span<const std::int64_t> sequences) {
  FirstFit packing(request, sequences.size());
  for (const std::int64_t sequence : sequences) packing.add(sequence);
  return packing.take();
}

}  // namespace skrull
