#include "local_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "construct.h"
#include "skrull/core/rng.h"
#include "soft_objective.h"

namespace skrull {
namespace {

// Cooling: from a maximum soft enough to let moves pass that only help the second-slowest rank, to a nearly hard one.
constexpr int stages = 12;
constexpr double first_temperature = 1e-4;  // relative worsening that is accepted once in e
constexpr double last_temperature = 6e-7;
constexpr int first_sharpness = 7;
constexpr int last_sharpness = 9;

// Shares of the kinds of moves; the rest relocates one sequence.
constexpr double reshape_share = 0.2;
constexpr double swap_share = 0.55;
constexpr double exchange_share = 0.02;
/// Share of all effort that goes into rebuilding, which pays most where micro-batches exchange sequences.
constexpr double rebuild_share_of_several = 0.5;
constexpr double rebuild_share_of_one = 0.2;

// What a move costs, in moves of whole sequences.
constexpr int local_effort = 1;
constexpr int ring_effort = 8;
constexpr int rebuild_effort_per_sequence = 20;

/// A sequence is long, and worth a ring, when alone it takes this share of the schedule.
constexpr double long_share = 0.3;
/// Improvements below this are not worth a copy of the schedule.
constexpr double least_improvement = 1e-5;
/// Noise on lengths where the longest of a rebuild goes first.
constexpr double rebuild_noise = 0.4;
constexpr double rebuild_height_low = 0.98;
constexpr double rebuild_height_span = 0.1;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

/// Random numbers for the inner loop: SplitMix64 (Steele, Lea, Flood 2014).
class FastRandom {
 public:
  explicit FastRandom(std::uint64_t key) : state_(key) {}

  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }
  int below(int bound) { return static_cast<int>((bits() >> 32U) * static_cast<std::uint64_t>(bound) >> 32U); }
  double uniform() { return static_cast<double>(bits() >> 11U) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// One rank in one micro-batch.
struct RankAt {
  int micro_batch = 0;
  int rank = 0;

  bool operator==(const RankAt&) const = default;
};

class Annealing {
 public:
  Annealing(DraftSchedule draft, const LocalSearchOptions& options)
      : draft_(std::move(draft)),
        options_(options),
        random_(random_key(options.seed, "schedule.local_search")),
        objective_(draft_, first_sharpness),
        best_(draft_),
        best_seconds_(draft_.schedule_seconds()) {
    collect_long_sequences();
    for (double& value : exponential_) value = -std::log1p(-random_.uniform());
  }

  DraftSchedule run() {
    if (draft_.sequence_count() == 0) return std::move(best_);
    for (int stage = 0; stage < stages; ++stage) {
      const double share = static_cast<double>(stage) / (stages - 1);
      temperature_ = first_temperature * std::pow(last_temperature / first_temperature, share);
      objective_.rebuild(first_sharpness + static_cast<int>(std::lround((last_sharpness - first_sharpness) * share)));
      last_stage_ = stage + 1 == stages;
      value_ = objective_.value();
      const double moves = static_cast<double>(options_.moves) * (stage + 1) / stages;
      if (!run_until(static_cast<std::int64_t>(moves))) break;
    }
    return std::move(best_);
  }

 private:
  /// False when the deadline has passed.
  bool run_until(std::int64_t end) {
    std::int64_t calls = 0;
    while (effort_ < end) {
      if (options_.deadline && ++calls % 64 == 0 && std::chrono::steady_clock::now() > *options_.deadline) {
        remember_best();
        return false;
      }
      if (static_cast<double>(rebuild_effort_) < rebuild_share_ * static_cast<double>(effort_)) {
        const int effort = rebuild();
        rebuild_effort_ += effort;
        effort_ += effort;
      } else {
        effort_ += move();
      }
    }
    return true;
  }

  /// Returns its effort.
  int move() {
    const double kind = random_.uniform();
    if (kind < reshape_share) return long_.empty() ? relocate() : reshape();
    if (kind < reshape_share + swap_share) return swap();
    if (kind < reshape_share + swap_share + exchange_share) return exchange_micro_batches();
    return relocate();
  }

  // --- what to move, and where

  void collect_long_sequences() {
    if (draft_.context_parallel() == 1) return;
    const PlacementCosts& costs = draft_.costs();
    const double limit = long_share * best_seconds_ + costs.cost().micro_batch_overhead();
    for (int sequence = 0; sequence < draft_.sequence_count(); ++sequence) {
      const int ring = costs.least_ring(sequence);
      if (draft_.ring_size_of(sequence) > 1 ||
          costs.cost().seconds_alone(costs.length(sequence), ring, Link::intra_node) > limit) {
        long_.push_back(sequence);
      }
    }
  }

  /// A random sequence; half of the time one on the slowest rank of a micro-batch of the slowest replica.
  int choose_sequence() {
    if (random_.below(2) == 0) return random_.below(draft_.sequence_count());
    const int micro_batch = random_micro_batch_of(objective_.slowest_replica());
    const int sequence = choose_on_rank({micro_batch, slowest_rank(micro_batch)});
    return sequence >= 0 ? sequence : random_.below(draft_.sequence_count());
  }

  /// One with sequences; of another replica when this one has none.
  int random_micro_batch_of(int replica) {
    const int count = draft_.micro_batch_count();
    int candidate = random_.below(count);
    for (int i = 0; i < count; ++i, candidate = candidate + 1 == count ? 0 : candidate + 1) {
      const DraftMicroBatch& micro_batch = draft_.micro_batch(candidate);
      if (micro_batch.replica == replica && micro_batch.sequences > 0) return candidate;
    }
    return draft_.micro_batch_of(random_.below(draft_.sequence_count()));
  }

  int slowest_rank(int index) const {
    const std::vector<DraftRank>& ranks = draft_.micro_batch(index).ranks;
    const auto slowest = std::max_element(ranks.begin(), ranks.end(),
                                          [](const DraftRank& a, const DraftRank& b) { return a.seconds < b.seconds; });
    return static_cast<int>(slowest - ranks.begin());
  }

  bool touches(int ring, int rank) const { return draft_.ring(ring).holds[at(rank)] != 0; }

  /// A random sequence that touches this rank, -1 when there is none.
  int choose_on_rank(const RankAt& where) {
    const DraftMicroBatch& micro_batch = draft_.micro_batch(where.micro_batch);
    const std::vector<int>& local = micro_batch.ranks[at(where.rank)].local;
    std::size_t count = local.size();
    for (const int ring : micro_batch.rings) {
      if (touches(ring, where.rank)) count += draft_.ring(ring).sequences.size();
    }
    if (count == 0) return -1;
    std::size_t chosen = at(random_.below(static_cast<int>(count)));
    if (chosen < local.size()) return local[chosen];
    chosen -= local.size();
    for (const int ring : micro_batch.rings) {
      if (!touches(ring, where.rank)) continue;
      const std::vector<int>& sequences = draft_.ring(ring).sequences;
      if (chosen < sequences.size()) return sequences[chosen];
      chosen -= sequences.size();
    }
    return -1;
  }

  /// The one of three random ranks that could take the most before its replica became the slowest.
  RankAt choose_rank() {
    RankAt chosen;
    double most = -1.0;
    for (int i = 0; i < 3; ++i) {
      const RankAt candidate{random_.below(draft_.micro_batch_count()), random_.below(draft_.context_parallel())};
      const DraftMicroBatch& micro_batch = draft_.micro_batch(candidate.micro_batch);
      if (micro_batch.sequences == 0) continue;
      const double slack = best_seconds_ + objective_.micro_batch_seconds(candidate.micro_batch) -
                           micro_batch.ranks[at(candidate.rank)].seconds -
                           objective_.replica_seconds(micro_batch.replica);
      if (slack > most) {
        most = slack;
        chosen = candidate;
      }
    }
    return chosen;
  }

  // --- moves; each returns its effort

  /// Seconds of a rank whose whole sequences change by `tokens` and `local_forward`, and whether any remain.
  double seconds_after(const DraftRank& rank, std::int64_t tokens, double local_forward, bool has_local) const {
    const CostModel& cost = draft_.costs().cost();
    return cost.rank_seconds(cost.linear_seconds(rank.tokens + tokens), has_local, rank.local_forward + local_forward,
                             rank.rings);
  }

  const DraftRank& rank_at(const RankAt& where) const {
    return draft_.micro_batch(where.micro_batch).ranks[at(where.rank)];
  }

  /// One sequence, whole, to a rank with slack.
  int relocate() {
    const int sequence = choose_sequence();
    const RankAt target = choose_rank();
    const std::array<int, 1> ranks{target.rank};
    if (!draft_.is_local(sequence) || draft_.micro_batch(draft_.micro_batch_of(sequence)).sequences == 1) {
      draft_.copy_place(sequence, old_a_);
      if (is_hopeless(sequence, -1, target.micro_batch, ranks, old_a_)) return local_effort;
      draft_.remove(sequence);
      place_removed(sequence, target.micro_batch, ranks);
      return ring_effort;
    }
    const RankAt from{draft_.micro_batch_of(sequence), draft_.rank_of(sequence)};
    const PlacementCosts& costs = draft_.costs();
    const std::int64_t length = costs.length(sequence);
    const DraftRank& to = rank_at(target);
    if (from == target || to.tokens + length > costs.request().bucket_tokens) return local_effort;
    const DraftRank& old = rank_at(from);
    const double forward = costs.local_forward(sequence);
    const double value = objective_.value_with(
        {from.micro_batch, from.rank, seconds_after(old, -length, -forward, old.local.size() > 1)},
        {target.micro_batch, target.rank, seconds_after(to, length, forward, true)});
    if (!is_acceptable(value)) return local_effort;
    draft_.remove(sequence);
    draft_.insert(sequence, target.micro_batch, ranks);
    objective_.update(from.micro_batch, target.micro_batch);
    remember_best();
    return local_effort;
  }

  /// Two sequences exchange their places.
  int swap() {
    const int a = choose_sequence();
    const int b = choose_on_rank(choose_rank());
    const PlacementCosts& costs = draft_.costs();
    if (b < 0 || costs.length_class(a) == costs.length_class(b)) return local_effort;
    if (!draft_.is_local(a) || !draft_.is_local(b)) return swap_with_ring(a, b);
    const RankAt place_a{draft_.micro_batch_of(a), draft_.rank_of(a)};
    const RankAt place_b{draft_.micro_batch_of(b), draft_.rank_of(b)};
    const DraftRank& rank_a = rank_at(place_a);
    const DraftRank& rank_b = rank_at(place_b);
    const std::int64_t longer = costs.length(b) - costs.length(a);
    const std::int64_t bucket = costs.request().bucket_tokens;
    if (place_a == place_b || rank_a.tokens + longer > bucket || rank_b.tokens - longer > bucket) return local_effort;
    const double slower = costs.local_forward(b) - costs.local_forward(a);
    const double value =
        objective_.value_with({place_a.micro_batch, place_a.rank, seconds_after(rank_a, longer, slower, true)},
                              {place_b.micro_batch, place_b.rank, seconds_after(rank_b, -longer, -slower, true)});
    if (!is_acceptable(value)) return local_effort;
    draft_.remove(a);
    draft_.remove(b);
    draft_.insert(a, place_b.micro_batch, std::array<int, 1>{place_b.rank});
    draft_.insert(b, place_a.micro_batch, std::array<int, 1>{place_a.rank});
    objective_.update(place_a.micro_batch, place_b.micro_batch);
    remember_best();
    return local_effort;
  }

  int swap_with_ring(int a, int b) {
    draft_.copy_place(a, old_a_);
    draft_.copy_place(b, old_b_);
    if (old_a_.micro_batch == old_b_.micro_batch && old_a_.ranks == old_b_.ranks) return local_effort;
    if (!may_have_room(a, old_a_, b, old_b_) || !may_have_room(b, old_b_, a, old_a_)) return local_effort;
    if (is_hopeless(a, b, old_b_.micro_batch, old_b_.ranks, old_a_)) return local_effort;
    if (is_hopeless(b, a, old_a_.micro_batch, old_a_.ranks, old_b_)) return local_effort;
    draft_.remove(a);
    draft_.remove(b);
    bool fits = draft_.fits(a, old_b_.micro_batch, old_b_.ranks);
    if (fits) {
      draft_.insert(a, old_b_.micro_batch, old_b_.ranks);
      fits = draft_.fits(b, old_a_.micro_batch, old_a_.ranks);
      if (fits) {
        draft_.insert(b, old_a_.micro_batch, old_a_.ranks);
        objective_.update(old_a_.micro_batch, old_b_.micro_batch);
        if (decide()) return ring_effort;
        draft_.remove(b);
      }
      draft_.remove(a);
    }
    draft_.insert(b, old_b_.micro_batch, old_b_.ranks);
    draft_.insert(a, old_a_.micro_batch, old_a_.ranks);
    if (fits) objective_.revert();
    return ring_effort;
  }

  /// Seconds that no rank of a micro-batch can exceed by more than a little in a move that will be accepted.
  double height_limit(int micro_batch) const {
    constexpr double margin = 0.01;
    const int replica = draft_.micro_batch(micro_batch).replica;
    return objective_.micro_batch_seconds(micro_batch) + (1.0 + margin) * objective_.seconds() -
           objective_.replica_seconds(replica);
  }

  /// Whether a rank of `place` that is not one of `other` would be too slow by far with `incoming` in place of
  /// `outgoing`
  /// (-1: none). Estimated from kernels alone, to spare hopeless moves the exact evaluation.
  bool is_hopeless(int incoming, int outgoing, int micro_batch, std::span<const int> ranks, const Place& other) const {
    const PlacementCosts& costs = draft_.costs();
    const CostModel& cost = costs.cost();
    const auto size = static_cast<int>(ranks.size());
    const ShardCosts& in = costs.shards(incoming, size);
    std::int64_t tokens = in.tokens.back();
    double attention = in.attention_forward.back();
    if (outgoing >= 0) {
      const ShardCosts& out = costs.shards(outgoing, size);
      tokens -= out.tokens.back();
      attention -= out.attention_forward.back();
    }
    const double limit = height_limit(micro_batch) - cost.attention_weight() * attention;
    const std::vector<DraftRank>& drafts = draft_.micro_batch(micro_batch).ranks;
    return std::any_of(ranks.begin(), ranks.end(), [&](int index) {
      const DraftRank& rank = drafts[at(index)];
      const std::int64_t after = std::max<std::int64_t>(0, rank.tokens + tokens);
      if (rank.seconds + cost.linear_seconds(after) - cost.linear_seconds(rank.tokens) <= limit) return false;
      return micro_batch != other.micro_batch ||
             std::find(other.ranks.begin(), other.ranks.end(), index) == other.ranks.end();
    });
  }

  /// False when `incoming`, now at `from`, surely does not fit the ranks of `place` once `outgoing` has left them.
  bool may_have_room(int incoming, const Place& from, int outgoing, const Place& place) const {
    const PlacementCosts& costs = draft_.costs();
    const auto ring_size = static_cast<std::int64_t>(place.ranks.size());
    const std::int64_t in = costs.length(incoming) / ring_size;
    const std::int64_t out =
        costs.length(outgoing) / ring_size + 2;  // a shard is at most so much longer than its share
    if (in <= out) return true;
    const DraftMicroBatch& micro_batch = draft_.micro_batch(place.micro_batch);
    const std::int64_t own = place.micro_batch == from.micro_batch
                                 ? costs.length(incoming) / static_cast<std::int64_t>(from.ranks.size()) + 2
                                 : 0;
    const std::int64_t room = costs.request().bucket_tokens + out + own - in;
    return std::all_of(place.ranks.begin(), place.ranks.end(),
                       [&](int rank) { return micro_batch.ranks[at(rank)].tokens <= room; });
  }

  /// Another ring, size or micro-batch for a long sequence.
  int reshape() {
    const int sequence = long_[at(random_.below(static_cast<int>(long_.size())))];
    draft_.copy_place(sequence, old_a_);
    const int target = random_.below(2) == 0 ? old_a_.micro_batch : random_.below(draft_.micro_batch_count());
    const auto old_size = static_cast<int>(old_a_.ranks.size());
    if (target != old_a_.micro_batch &&
        (!choose_ring(sequence, target, old_size) || is_hopeless(sequence, -1, target, ring_, old_a_))) {
      return local_effort;
    }
    draft_.remove(sequence);
    if (target == old_a_.micro_batch && !choose_ring(sequence, target, old_size)) ring_.clear();
    place_removed(sequence, target, ring_);
    return ring_effort;
  }

  /// Ranks for `sequence` into ring_: those of a ring that is there, or the least loaded ones.
  bool choose_ring(int sequence, int target, int old_size) {
    const std::vector<int>& rings = draft_.micro_batch(target).rings;
    if (!rings.empty() && random_.below(3) == 0) {
      ring_ = draft_.ring(rings[at(random_.below(static_cast<int>(rings.size())))]).ranks;
      return true;
    }
    const int most = draft_.context_parallel();
    const int least = draft_.costs().least_ring(sequence);
    int size = old_size;
    switch (random_.below(4)) {
      case 0:
        size = old_size + 1;
        break;
      case 1:
        size = old_size - 1;
        break;
      case 2:
        size = least + random_.below(most - least + 1);
        break;
      default:
        break;
    }
    if (!options_.elastic && size > 1) size = most;
    if (size < least || size > most) return false;
    const Topology& topology = draft_.costs().request().topology;
    int node = any_node;
    if (size <= topology.ranks_per_node && most > topology.ranks_per_node) {
      node = topology.node_of(draft_.micro_batch(target).replica, random_.below(most));
    }
    return least_loaded_ranks(draft_, target, size, draft_.costs().shards(sequence, size).most_tokens, node, ring_);
  }

  /// Places a sequence that has been taken out of old_a_, where it returns when that is refused.
  void place_removed(int sequence, int target, std::span<const int> ranks) {
    const bool same = target == old_a_.micro_batch &&
                      std::equal(ranks.begin(), ranks.end(), old_a_.ranks.begin(), old_a_.ranks.end());
    if (same || ranks.empty() || !draft_.fits(sequence, target, ranks)) {
      draft_.insert(sequence, old_a_.micro_batch, old_a_.ranks);
      return;
    }
    draft_.insert(sequence, target, ranks);
    objective_.update(old_a_.micro_batch, target);
    if (decide()) return;
    draft_.remove(sequence);
    draft_.insert(sequence, old_a_.micro_batch, old_a_.ranks);
    objective_.revert();
  }

  /// Two micro-batches exchange their replicas, or one moves.
  int exchange_micro_batches() {
    if (draft_.data_parallel() == 1 || draft_.micro_batch_count() == draft_.data_parallel()) return local_effort;
    const int a = random_.below(draft_.micro_batch_count());
    const int replica_a = draft_.micro_batch(a).replica;
    if (random_.below(2) == 0) {
      const int b = random_.below(draft_.micro_batch_count());
      const int replica_b = draft_.micro_batch(b).replica;
      if (replica_a == replica_b) return local_effort;
      hand_over(a, replica_b);
      hand_over(b, replica_a);
      if (decide()) return ring_effort;
      hand_over(a, replica_a);
      hand_over(b, replica_b);
      return ring_effort;
    }
    hand_over(a, random_.below(draft_.data_parallel()));
    if (!decide()) hand_over(a, replica_a);
    return ring_effort;
  }

  void hand_over(int micro_batch, int replica) {
    objective_.detach(micro_batch);
    draft_.move_micro_batch(micro_batch, replica);
    objective_.attach(micro_batch);
    objective_.refresh_value();
  }

  /// Takes a slow rank and a random one apart, rings included, and places their sequences anew, the longest first.
  int rebuild() {
    const int a = random_micro_batch_of(objective_.slowest_replica());
    const int b = random_.below(draft_.micro_batch_count());
    rebuilt_.clear();
    collect({a, slowest_rank(a)});
    collect({b, random_.below(draft_.context_parallel())});
    const int effort = rebuild_effort_per_sequence * static_cast<int>(rebuilt_.size());
    if (rebuilt_.empty()) return local_effort;
    if (old_places_.size() < rebuilt_.size()) old_places_.resize(rebuilt_.size());
    order_.clear();
    for (std::size_t i = 0; i < rebuilt_.size(); ++i) {
      draft_.copy_place(rebuilt_[i], old_places_[i]);
      const double noise = 1.0 + rebuild_noise * (random_.uniform() - 0.5);
      order_.emplace_back(-noise * static_cast<double>(draft_.costs().length(rebuilt_[i])), rebuilt_[i]);
    }
    std::sort(order_.begin(), order_.end());
    for (const int sequence : rebuilt_) draft_.remove(sequence);
    sequences_.clear();
    for (const auto& [key, sequence] : order_) sequences_.push_back(sequence);
    const double height = (objective_.micro_batch_seconds(a) + objective_.micro_batch_seconds(b)) / 2.0 *
                          (rebuild_height_low + rebuild_height_span * random_.uniform());
    const std::array<int, 2> micro_batches{a, b};
    const bool placed =
        place_sequences(draft_, sequences_, std::span(micro_batches).first(a == b ? 1 : 2), height, options_.elastic);
    objective_.update(a, b);
    if (placed && decide()) return effort;
    for (const int sequence : rebuilt_) {
      if (draft_.micro_batch_of(sequence) >= 0) draft_.remove(sequence);
    }
    for (std::size_t i = 0; i < rebuilt_.size(); ++i) {
      draft_.insert(rebuilt_[i], old_places_[i].micro_batch, old_places_[i].ranks);
    }
    objective_.revert();
    return effort;
  }

  /// Adds the sequences that touch a rank to rebuilt_.
  void collect(const RankAt& where) {
    const auto add = [&](int sequence) {
      if (std::find(rebuilt_.begin(), rebuilt_.end(), sequence) == rebuilt_.end()) rebuilt_.push_back(sequence);
    };
    const DraftMicroBatch& micro_batch = draft_.micro_batch(where.micro_batch);
    for (const int sequence : micro_batch.ranks[at(where.rank)].local) add(sequence);
    for (const int ring : micro_batch.rings) {
      if (!touches(ring, where.rank)) continue;
      for (const int sequence : draft_.ring(ring).sequences) add(sequence);
    }
  }

  // --- acceptance

  bool is_acceptable(double value) {
    const double luck = exponential_[random_.bits() % exponential_.size()];
    return value <= value_ * (1.0 + objective_.exponent() * temperature_ * luck);
  }

  /// Accepts or refuses what the draft and the objective already show.
  bool decide() {
    if (!is_acceptable(objective_.value())) return false;
    remember_best();
    return true;
  }

  void remember_best() {
    value_ = objective_.value();
    if (!last_stage_ && !options_.deadline) return;  // colder stages will find better ones
    const double seconds = objective_.seconds();
    if (seconds < best_seconds_ * (1.0 - least_improvement)) {
      best_seconds_ = seconds;
      best_ = draft_;
    }
  }

  DraftSchedule draft_;
  LocalSearchOptions options_;
  FastRandom random_;
  SoftObjective objective_;
  DraftSchedule best_;
  double best_seconds_;
  std::vector<int> long_;                   ///< sequences
  std::array<double, 1024> exponential_{};  ///< exponentially distributed draws
  double temperature_ = 0.0;
  double value_ = 0.0;  ///< of the objective, as accepted
  bool last_stage_ = false;
  std::int64_t effort_ = 0;
  std::int64_t rebuild_effort_ = 0;
  double rebuild_share_ = draft_.micro_batch_count() > draft_.data_parallel() ? rebuild_share_of_several
                                                                              : rebuild_share_of_one;

  // Storage that moves reuse.
  Place old_a_;
  Place old_b_;
  std::vector<int> ring_;
  std::vector<int> rebuilt_;
  std::vector<int> sequences_;
  std::vector<Place> old_places_;
  std::vector<std::pair<double, int>> order_;
};

}  // namespace

DraftSchedule local_search(DraftSchedule draft, const LocalSearchOptions& options) {
  return Annealing(std::move(draft), options).run();
}

}  // namespace skrull
