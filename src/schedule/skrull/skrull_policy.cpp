#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>

#include "construct.h"
#include "exact.h"
#include "local_search.h"
#include "skrull/schedule/bound.h"

namespace skrull {
namespace {

/// A schedule to start the local search from.
struct Start {
  std::shared_ptr<const PlacementCosts> costs;  ///< of the draft; one for each start where threads search at once
  DraftSchedule draft;
  double seconds = 0.0;
};

/// The moves of one search: by default more, the longer the step takes that they are to shorten.
std::int64_t search_moves(const PolicyInput& input, double bound_seconds) {
  constexpr double moves_per_second = 8e6;
  constexpr double fewest = 4e4;
  constexpr double most = 4.3e5;
  constexpr std::int64_t most_asked = 1'000'000'000'000;  // days
  if (input.search.moves >= 0) return std::min(input.search.moves, most_asked);
  return static_cast<std::int64_t>(std::clamp(bound_seconds * moves_per_second, fewest, most));
}

/// Placements of the exact search: by default what takes about half a second, or a third of the step where plans have
/// to keep ahead of it; else in proportion to the moves, which take about as long as ten placements.
std::int64_t exact_placements(const SearchOptions& search, double bound_seconds) {
  constexpr std::int64_t most = 12'000'000;
  constexpr std::int64_t per_move = 10;
  constexpr double per_second_of_step = 3e6;
  if (search.moves >= 0) return per_move * std::min(most / per_move, search.moves);
  if (!search.keep_ahead) return most;
  return std::min(most, static_cast<std::int64_t>(per_second_of_step * bound_seconds));
}

/// Plans one request.
class SkrullPlanner {
 public:
  explicit SkrullPlanner(const PolicyInput& input)
      : input_(input),
        costs_(std::make_shared<const PlacementCosts>(input.request, input.cost)),
        bound_(lower_bound(input.request, input.cost).seconds),
        moves_(search_moves(input, bound_)) {
    if (input.search.budget_ms > 0.0) {
      const std::chrono::duration<double, std::milli> budget(input.search.budget_ms);
      deadline_ =
          std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(budget);
    }
  }

  /// Stays good as long as this planner.
  DraftSchedule plan() {
    construct_starts();
    // Successive halving: all starts get a few moves, the better ones more, the best one the rest.
    struct Round {
      double share;  ///< of the moves, for each start
      std::size_t keep;
    };
    constexpr std::array rounds{Round{0.01, 5}, Round{0.04, 2}, Round{0.15, 1}};
    std::int64_t left = moves_;
    std::uint64_t seed = 0;
    for (const Round& round : rounds) {
      if (starts_.size() == 1) break;
      const auto moves = static_cast<std::int64_t>(round.share * static_cast<double>(moves_));
      improve_all(moves, seed);
      left -= moves * static_cast<std::int64_t>(starts_.size());
      keep_best(round.keep);
      ++seed;
    }
    keep_best(1);
    improve(starts_.front(), std::max<std::int64_t>(0, left), seed);
    if (!exact_search_applies(*starts_.front().costs)) return starts_.front().draft;
    return search_exactly(starts_.front().draft);
  }

 private:
  /// Schedules for several numbers of micro-batches and target heights. Which height suits is only known after some
  /// search: higher ones shard less and balance worse.
  void construct_starts() {
    constexpr std::array heights{1.01, 1.05, 1.1, 1.03, 1.075, 1.02, 1.005, 1.125, 1.0, 1.015, 1.06};
    constexpr std::array later_heights{1.05, 1.0, 1.1};
    const Topology& topology = input_.request.topology;
    double tokens = 0.0;
    for (const std::int64_t length : input_.request.lengths) tokens += static_cast<double>(length);
    const double capacity =
        static_cast<double>(input_.request.bucket_tokens) * topology.context_parallel * topology.data_parallel;
    int count = std::max(1, static_cast<int>(std::ceil(tokens / capacity)));
    while (!construct_with(count, heights)) count += std::max(1, count / 16);
    construct_with(count + 1, later_heights);
    double least = starts_.front().seconds;
    for (const Start& start : starts_) least = std::min(least, start.seconds);
    constexpr double hopeless = 1.08;  // the search gains less than that
    std::erase_if(starts_, [&](const Start& start) { return start.seconds > hopeless * least; });
  }

  /// One start per height while the moves are not spent on them. False when none fits this many micro-batches.
  bool construct_with(int count, std::span<const double> heights) {
    // In moves: a sequence is tried in every micro-batch.
    const double slots = static_cast<double>(count) * input_.request.topology.data_parallel;
    const double effort = static_cast<double>(input_.request.lengths.size()) * (16.0 + slots / 2.5);
    constexpr double construction_share = 0.3;
    bool any = false;
    for (const double height : heights) {
      if (!starts_.empty() && construction_effort_ + effort > construction_share * static_cast<double>(moves_)) break;
      const auto costs =
          input_.search.threads == 1 ? costs_ : std::make_shared<const PlacementCosts>(input_.request, input_.cost);
      auto draft = construct_schedule(*costs, count, bound_ / count * height, input_.search.elastic_rings);
      construction_effort_ += effort;
      if (!draft) return any;
      any = true;
      const double seconds = draft->schedule_seconds();
      const bool known =
          std::any_of(starts_.begin(), starts_.end(), [&](const Start& start) { return start.seconds == seconds; });
      if (!known) starts_.push_back({costs, std::move(*draft), seconds});
    }
    return any;
  }

  /// Branch and bound. A better schedule than the one it began with cuts off so much that it pays to begin again, with
  /// what is left of the placements.
  DraftSchedule search_exactly(DraftSchedule best) const {
    constexpr double first_share = 0.67;
    std::int64_t left = exact_placements(input_.search, bound_);
    auto placements = static_cast<std::int64_t>(first_share * static_cast<double>(left));
    for (;;) {
      const double before = best.schedule_seconds();
      ExactResult result = exact_search(std::move(best), {input_.search.elastic_rings, placements, deadline_});
      best = std::move(result.schedule);
      left -= result.placements;
      const bool improved = best.schedule_seconds() < before;
      if (result.proven || !improved || left <= 0) return best;
      placements = left;
    }
  }

  /// Every start by itself, so that the number of threads changes nothing.
  void improve_all(std::int64_t moves, std::uint64_t seed) {
    const std::size_t threads = std::min(starts_.size(), static_cast<std::size_t>(input_.search.threads));
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i = next++; i < starts_.size(); i = next++) improve(starts_[i], moves, seed);
    };
    std::vector<std::future<void>> others;
    for (std::size_t i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, work));
    work();
    for (std::future<void>& other : others) other.get();
  }

  void improve(Start& start, std::int64_t moves, std::uint64_t seed) {
    LocalSearchOptions options{moves, seed, input_.search.elastic_rings, deadline_};
    start.draft = local_search(std::move(start.draft), options);
    start.seconds = start.draft.schedule_seconds();
  }

  void keep_best(std::size_t count) {
    std::stable_sort(starts_.begin(), starts_.end(),
                     [](const Start& a, const Start& b) { return a.seconds < b.seconds; });
    if (starts_.size() > count) starts_.erase(starts_.begin() + static_cast<std::ptrdiff_t>(count), starts_.end());
  }

  const PolicyInput& input_;
  std::shared_ptr<const PlacementCosts> costs_;
  double bound_;
  std::int64_t moves_;
  SearchDeadline deadline_;
  double construction_effort_ = 0.0;
  std::vector<Start> starts_;
};

double seconds_of(const ReplicaMicroBatches& micro_batches, const PolicyInput& input) {
  const Plan plan{"", input.request.topology, input.request.bucket_tokens, input.request.lengths, micro_batches};
  return schedule_seconds(plan, input.cost);
}

}  // namespace

ReplicaMicroBatches skrull_policy(const PolicyInput& input) {
  if (input.request.lengths.empty()) {
    return ReplicaMicroBatches(static_cast<std::size_t>(input.request.topology.data_parallel));
  }
  SkrullPlanner planner(input);
  ReplicaMicroBatches ours = planner.plan().to_micro_batches();
  ReplicaMicroBatches balanced = packed_balanced_policy(input);
  return seconds_of(balanced, input) < seconds_of(ours, input) ? balanced : ours;
}

}  // namespace skrull
