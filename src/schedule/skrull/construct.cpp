#include "construct.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace skrull {
namespace {

/// Larger rings are tried until so many in a row end no sooner.
constexpr int most_in_vain = 3;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Ring sizes that the search considers for `sequence`, ascending, 1 (local) included where it fits: every size up to
/// 16, then steps of about an eighth; without elastic rings only 1 and all CP ranks.
std::vector<int> ring_sizes_of(const PlacementCosts& costs, int sequence, bool elastic) {
  const int most = costs.request().topology.context_parallel;
  const int least = costs.least_ring(sequence);
  std::vector<int> sizes;
  if (!elastic) {
    if (least == 1) sizes.push_back(1);
    if (most > 1) sizes.push_back(most);
    return sizes;
  }
  for (int size = least; size < most; size += size < 16 ? 1 : size / 8) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

struct Candidate {
  double seconds = infinity;
  int micro_batch = -1;
  std::vector<int> ranks;
};

/// Considers every micro-batch for one sequence.
class Placer {
 public:
  Placer(DraftSchedule& draft, std::span<const int> micro_batches)
      : draft_(draft),
        micro_batches_(micro_batches),
        ranks_per_replica_(static_cast<std::size_t>(draft.context_parallel())) {
    ascending_.resize(micro_batches.size() * ranks_per_replica_);
    for (std::size_t i = 0; i < micro_batches.size(); ++i) sort_ranks(i);
    linear_rate_ = draft.costs().cost().linear_seconds_per_token(draft.costs().request().bucket_tokens);
  }

  /// Seconds that a shard adds to its rank, at least: kernels at their best rate, no fixed costs, no transfers.
  double least_addition(int sequence, int size) const {
    const ShardCosts& shards = draft_.costs().shards(sequence, size);
    return draft_.costs().cost().attention_weight() * shards.attention_forward.back() +
           linear_rate_ * static_cast<double>(shards.tokens.back());
  }

  /// Best place on a ring of `size` over all micro-batches.
  const Candidate& find(int sequence, int size) {
    best_.seconds = infinity;
    best_.micro_batch = -1;
    // The slowest rank of a ring is no faster than the size-th lightest: try where that is lowest first, then only
    // where it leaves a chance.
    const double addition = least_addition(sequence, size);
    std::size_t first = 0;
    for (std::size_t i = 1; i < micro_batches_.size(); ++i) {
      if (lightest(i, size) < lightest(first, size)) first = i;
    }
    try_micro_batch(sequence, size, first);
    for (std::size_t i = 0; i < micro_batches_.size(); ++i) {
      if (i == first || lightest(i, size) + addition >= best_.seconds) continue;
      try_micro_batch(sequence, size, i);
    }
    return best_;
  }

  void place(int sequence, const Candidate& where) {
    draft_.insert(sequence, where.micro_batch, where.ranks);
    const auto slot = std::find(micro_batches_.begin(), micro_batches_.end(), where.micro_batch);
    sort_ranks(static_cast<std::size_t>(slot - micro_batches_.begin()));
  }

 private:
  struct RankSeconds {
    double seconds = 0.0;
    int rank = 0;

    bool operator<(const RankSeconds& other) const {
      return seconds < other.seconds || (seconds == other.seconds && rank < other.rank);
    }
  };

  /// Seconds of the `count`-th lightest rank of a micro-batch.
  double lightest(std::size_t index, int count) const {
    return ascending_[index * ranks_per_replica_ + static_cast<std::size_t>(count) - 1].seconds;
  }

  void sort_ranks(std::size_t index) {
    const auto begin = ascending_.begin() + static_cast<std::ptrdiff_t>(index * ranks_per_replica_);
    auto next = begin;
    int number = 0;
    for (const DraftRank& rank : draft_.micro_batch(micro_batches_[index]).ranks) *next++ = {rank.seconds, number++};
    std::sort(begin, next);
  }

  /// The lightest ranks with room into ranks_; of one node, the one that gets `size` together first, where asked for.
  /// False when there are too few.
  bool choose_lightest(std::size_t index, int size, std::int64_t most_tokens, bool of_one_node) {
    const DraftMicroBatch& slot = draft_.micro_batch(micro_batches_[index]);
    const ScheduleRequest& request = draft_.costs().request();
    const Topology& topology = request.topology;
    const int first_node = topology.node_of(slot.replica, 0);
    const auto node_of = [&](int rank) {
      return static_cast<std::size_t>(topology.node_of(slot.replica, rank) - first_node);
    };
    if (of_one_node) ranks_of_node_.assign(node_of(topology.context_parallel - 1) + 1, 0);
    const std::span<const RankSeconds> ascending(&ascending_[index * ranks_per_replica_], ranks_per_replica_);
    const auto has_room = [&](int rank) {
      return slot.ranks[static_cast<std::size_t>(rank)].tokens + most_tokens <= request.bucket_tokens;
    };
    ranks_.clear();
    for (std::size_t i = 0; i < ascending.size(); ++i) {
      const int rank = ascending[i].rank;
      if (!has_room(rank)) continue;
      if (of_one_node) {
        if (++ranks_of_node_[node_of(rank)] < size) continue;
        for (std::size_t k = 0; k <= i; ++k) {
          const int other = ascending[k].rank;
          if (node_of(other) == node_of(rank) && has_room(other)) ranks_.push_back(other);
        }
      } else {
        ranks_.push_back(rank);
      }
      if (static_cast<int>(ranks_.size()) == size) {
        std::sort(ranks_.begin(), ranks_.end());
        return true;
      }
    }
    return false;
  }

  void try_micro_batch(int sequence, int size, std::size_t index) {
    const int micro_batch = micro_batches_[index];
    for (const int ring : draft_.micro_batch(micro_batch).rings) {
      const std::vector<int>& known = draft_.ring(ring).ranks;
      if (static_cast<int>(known.size()) == size && draft_.fits(sequence, micro_batch, known)) {
        offer(sequence, micro_batch, known);
      }
    }
    const std::int64_t most_tokens = draft_.costs().shards(sequence, size).most_tokens;
    if (!choose_lightest(index, size, most_tokens, false)) return;
    offer(sequence, micro_batch, ranks_);
    const Topology& topology = draft_.costs().request().topology;
    const int replica = draft_.micro_batch(micro_batch).replica;
    if (size > topology.ranks_per_node || ring_link(ranks_, replica, topology) == Link::intra_node) return;
    if (choose_lightest(index, size, most_tokens, true)) offer(sequence, micro_batch, ranks_);
  }

  void offer(int sequence, int micro_batch, const std::vector<int>& ranks) {
    const double seconds = draft_.seconds_with(sequence, micro_batch, ranks);
    if (seconds >= best_.seconds) return;
    best_.seconds = seconds;
    best_.micro_batch = micro_batch;
    best_.ranks = ranks;
  }

  DraftSchedule& draft_;
  std::span<const int> micro_batches_;
  std::size_t ranks_per_replica_;
  std::vector<RankSeconds> ascending_;  ///< [micro-batch][k]: its ranks, the lightest first
  double linear_rate_ = 0.0;            ///< seconds per token
  Candidate best_;
  std::vector<int> ranks_;
  std::vector<int> ranks_of_node_;
};

}  // namespace

std::vector<int> longest_first(const ScheduleRequest& request) {
  std::vector<int> order(request.lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return request.lengths[static_cast<std::size_t>(a)] > request.lengths[static_cast<std::size_t>(b)];
  });
  return order;
}

bool least_loaded_ranks(const DraftSchedule& draft, int micro_batch, int size, std::int64_t most_tokens, int node,
                        std::vector<int>& ranks) {
  const DraftMicroBatch& slot = draft.micro_batch(micro_batch);
  const ScheduleRequest& request = draft.costs().request();
  const Topology& topology = request.topology;
  int first = 0;
  int end = topology.context_parallel;
  if (node != any_node) {
    const int base = slot.replica * topology.context_parallel;
    first = std::max(0, node * topology.ranks_per_node - base);
    end = std::min(end, (node + 1) * topology.ranks_per_node - base);
  }
  // Insertion into the few lightest so far, ties to the lower rank.
  ranks.clear();
  for (int rank = first; rank < end; ++rank) {
    const DraftRank& candidate = slot.ranks[static_cast<std::size_t>(rank)];
    if (candidate.tokens + most_tokens > request.bucket_tokens) continue;
    const bool full = static_cast<int>(ranks.size()) == size;
    if (full && candidate.seconds >= slot.ranks[static_cast<std::size_t>(ranks.back())].seconds) continue;
    if (!full) ranks.push_back(rank);
    std::size_t place = ranks.size() - 1;
    for (; place > 0 && slot.ranks[static_cast<std::size_t>(ranks[place - 1])].seconds > candidate.seconds; --place) {
      ranks[place] = ranks[place - 1];
    }
    ranks[place] = rank;
  }
  if (static_cast<int>(ranks.size()) < size) return false;
  std::sort(ranks.begin(), ranks.end());
  return true;
}

std::optional<DraftSchedule> construct_schedule(const PlacementCosts& costs, int micro_batches, double height,
                                                bool elastic) {
  DraftSchedule draft(costs, micro_batches);
  std::vector<int> all(static_cast<std::size_t>(draft.micro_batch_count()));
  std::iota(all.begin(), all.end(), 0);
  if (!place_sequences(draft, longest_first(costs.request()), all, height, elastic)) return std::nullopt;
  return draft;
}

bool place_sequences(DraftSchedule& draft, std::span<const int> sequences, std::span<const int> micro_batches,
                     double height, bool elastic) {
  Placer placer(draft, micro_batches);
  Candidate best;
  for (const int sequence : sequences) {
    best.seconds = infinity;
    best.micro_batch = -1;
    const std::vector<int> sizes = ring_sizes_of(draft.costs(), sequence, elastic);
    int in_vain = 0;
    for (const int size : sizes) {
      const bool hopeless =
          draft.costs().cost().micro_batch_overhead() + placer.least_addition(sequence, size) > height;
      if (hopeless && size != sizes.back()) continue;
      const Candidate& found = placer.find(sequence, size);
      if (found.seconds < best.seconds) {
        best = found;
        in_vain = 0;
      } else if (best.micro_batch >= 0 && ++in_vain == most_in_vain) {
        break;
      }
      if (best.seconds <= height) break;
    }
    if (best.micro_batch < 0) return false;
    placer.place(sequence, best);
  }
  return true;
}

}  // namespace skrull
