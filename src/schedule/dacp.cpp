#include "dacp.h"

#include <algorithm>

#include "whole_group.h"

namespace skrull {
namespace {

class DacpHeuristic {
 public:
  explicit DacpHeuristic(const DacpProblem& problem)
      : problem_(problem),
        ranks_(static_cast<std::size_t>(problem.context_parallel)),
        room_(ranks_, problem.bucket_tokens),
        load_(ranks_),
        rolled_back_(ranks_),
        shards_(ranks_),
        planned_(empty_micro_batch(problem.context_parallel)) {}

  bool place(std::int64_t sequence) {
    while (!place_local(sequence) && !place_distributed(sequence)) {
      if (!roll_back(rank_that_lacks_most(sequence))) return false;
    }
    return true;
  }

  PlannedMicroBatch take() {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      auto& local = planned_.local[rank];
      local.erase(local.begin(), local.begin() + static_cast<std::ptrdiff_t>(rolled_back_[rank]));
    }
    return std::move(planned_);
  }

 private:
  std::int64_t length_of(std::int64_t sequence) const { return problem_.lengths[static_cast<std::size_t>(sequence)]; }
  double flops_of(std::int64_t sequence) const { return problem_.flops[static_cast<std::size_t>(sequence)]; }

  std::size_t rank_by_local_rule() const {
    if (problem_.local_rule == LocalRule::cyclic) return next_in_turn_;
    return static_cast<std::size_t>(std::min_element(load_.begin(), load_.end()) - load_.begin());
  }

  bool place_local(std::int64_t sequence) {
    const std::int64_t length = length_of(sequence);
    std::size_t rank = rank_by_local_rule();
    if (room_[rank] < length)
      rank = static_cast<std::size_t>(std::max_element(room_.begin(), room_.end()) - room_.begin());
    if (room_[rank] < length) return false;
    room_[rank] -= length;
    load_[rank] += flops_of(sequence);
    planned_.local[rank].push_back(sequence);
    next_in_turn_ = (rank + 1) % ranks_;
    return true;
  }

  bool place_distributed(std::int64_t sequence) {
    if (ranks_ == 1) return false;
    zigzag_shard_lengths(length_of(sequence), shards_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (room_[rank] < shards_[rank]) return false;
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      room_[rank] -= shards_[rank];
      load_[rank] += flops_of(sequence) / static_cast<double>(ranks_);
    }
    add_on_whole_group(planned_, sequence);
    return true;
  }

  std::size_t rank_that_lacks_most(std::int64_t sequence) {
    zigzag_shard_lengths(length_of(sequence), shards_);
    std::size_t tightest = 0;
    for (std::size_t rank = 1; rank < ranks_; ++rank) {
      if (room_[rank] - shards_[rank] < room_[tightest] - shards_[tightest]) tightest = rank;
    }
    return tightest;
  }

  /// The first local sequence of `rank` becomes distributed; false when it has none or the shares do not fit.
  bool roll_back(std::size_t rank) {
    if (rolled_back_[rank] == planned_.local[rank].size()) return false;
    const std::int64_t sequence = planned_.local[rank][rolled_back_[rank]];
    room_[rank] += length_of(sequence);
    load_[rank] -= flops_of(sequence);
    ++rolled_back_[rank];
    return place_distributed(sequence);
  }

  const DacpProblem& problem_;
  std::size_t ranks_;
  std::vector<std::int64_t> room_;
  std::vector<double> load_;
  std::vector<std::size_t> rolled_back_;  ///< how many of a rank's first local sequences have become distributed
  std::vector<std::int64_t> shards_;
  std::size_t next_in_turn_ = 0;
  PlannedMicroBatch planned_;
};

}  // namespace

std::optional<PlannedMicroBatch> dacp(const DacpProblem& problem, std::span<const std::int64_t> sequences) {
  DacpHeuristic heuristic(problem);
  for (const std::int64_t sequence : sequences) {
    if (!heuristic.place(sequence)) return std::nullopt;
  }
  return heuristic.take();
}

}  // namespace skrull
