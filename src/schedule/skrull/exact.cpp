#include "exact.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "construct.h"
#include "linear_floor.h"
#include "rank_symmetry.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

static_assert(exact_most_ranks <= RankSymmetry::most_ranks);

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::size_t max_ranks = RankSymmetry::most_ranks;
constexpr std::size_t ring_sets = RankSymmetry::set_count;
/// A schedule counts as better when it is shorter by more than this share: below, it is rounding.
constexpr double tolerance = 1e-10;

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

std::size_t at(Link link) {
  return static_cast<std::size_t>(link);
}

int size_of(RankSet ranks) {
  return std::popcount(ranks);
}

bool holds(RankSet ranks, std::size_t rank) {
  return (ranks >> rank & 1U) != 0;
}

/// One sequence on a ring of one size: of tokens and attention the least over the ring's positions.
struct Shard {
  std::int64_t tokens = 0;
  double attention_forward = 0.0;
  double hop_bytes = 0.0;
  bool fits = false;  ///< an empty rank
  double work = 0.0;  ///< attention over all ranks and layers
  /// Per link: seconds of the slowest position when alone in a micro-batch; infinite when it does not fit.
  std::array<double, 2> alone{infinity, infinity};
  double least_alone = infinity;      ///< over the links that there are
  const ShardCosts* exact = nullptr;  ///< of every position
};

struct SearchRank {
  std::int64_t tokens = 0;
  bool has_local = false;
  double local_forward = 0.0;
  RingTime rings;
  double seconds = 0.0;
  double work = 0.0;   ///< seconds without exposed transfers
  double slope = 0.0;  ///< LinearFloor::least_slope
};

/// All sequences of a micro-batch on the same ranks.
struct SearchRing {
  int sequences = 0;
  double attention_forward = 0.0;
  double hop_bytes = 0.0;
  RingTime time;
};

/// Of all ranks of a micro-batch.
struct SlotSums {
  double seconds = 0.0;  ///< the most; 0: not begun
  double work = 0.0;
  double slope = infinity;  ///< the least
  std::int64_t tokens = 0;
};

/// A micro-batch, or one that could be begun.
struct Slot {
  int replica = 0;
  int sequences = 0;
  SlotSums sums;
  RankSymmetry::Group symmetry = 0;  ///< what leaves it as it is
  std::array<SearchRank, max_ranks> ranks;
  std::array<SearchRing, ring_sets> rings;
};

struct Placement {
  int slot = -1;
  RankSet ranks = 0;

  /// The order in which equal sequences are placed.
  bool before(const Placement& other) const { return slot < other.slot || (slot == other.slot && ranks < other.ranks); }
};

struct Child {
  double bound = infinity;
  double seconds = 0.0;  ///< of the schedule so far
  Placement placement;
};

/// The least of several sequences on any ring.
struct SmallestShard {
  std::int64_t tokens = std::numeric_limits<std::int64_t>::max();
  double attention = infinity;  ///< on one rank, seconds over all layers
  double alone = infinity;
};

/// Sums over all micro-batches begun.
struct Totals {
  double work = 0.0;
  std::int64_t free_tokens = 0;
  int replicas = 0;  ///< with work
};

class BranchAndBound {
 public:
  BranchAndBound(const DraftSchedule& known, const ExactOptions& options)
      : costs_(known.costs()),
        cost_(costs_.cost()),
        request_(costs_.request()),
        options_(options),
        ranks_(at(request_.topology.context_parallel)),
        order_(longest_first(request_)),
        count_(static_cast<int>(order_.size())),
        most_tokens_(most_tokens(request_)),
        linear_(cost_, most_tokens_),
        limit_(known.schedule_seconds() * (1.0 - tolerance)) {
    prepare_replicas();
    prepare_sets();
    prepare_sequences();
    prepare_slots();
  }

  /// The tokens that a rank can hold at most.
  static std::int64_t most_tokens(const ScheduleRequest& request) {
    std::int64_t total = 0;
    for (const std::int64_t length : request.lengths) total += length;
    return std::min(total, request.bucket_tokens);
  }

  /// Looks first for schedules much better than the known one: the sooner a good one is found, the more is given up.
  ExactResult search(DraftSchedule known) {
    struct Pass {
      double aim;           ///< between the lower bound, 0, and the best schedule known, 1
      double budget_share;  ///< of all placements
    };
    constexpr std::array passes{Pass{0.3, 0.15}, Pass{0.6, 0.25}, Pass{1.0, 1.0}};
    const double bound = first_bound();
    bool proven = limit_ <= bound;
    for (const Pass& pass : passes) {
      if (proven) break;
      const double best = limit_;
      const double aim = pass.aim * best + (1.0 - pass.aim) * bound;
      const auto budget = static_cast<std::int64_t>(pass.budget_share * static_cast<double>(options_.placements));
      pass_end_ = std::min(placements_ + budget, options_.placements);
      stopped_ = false;
      set_limit(std::min(aim, best));
      place_from(0);
      const bool found = limit_ < aim;
      proven = !stopped_ && (found || pass.aim >= 1.0);
      if (!found) set_limit(best);
    }
    if (!best_.empty()) known = best_schedule();
    return {std::move(known), proven, placements_};
  }

 private:
  /// Of every schedule below the limit. (lower_bound() is no help: it expects the profile's rates to rise slowly.)
  double first_bound() {
    set_limit(limit_);
    double bound = work_bound({}, linear_.least_slope(0), 0);
    for (const auto& shards : shards_) {
      double alone = infinity;
      for (const Shard& shard : shards) alone = std::min(alone, shard.least_alone);
      bound = std::max(bound, alone);
    }
    return bound;
  }

  void prepare_replicas() {
    const Topology& topology = request_.topology;
    for (int replica = 0; replica < topology.data_parallel; ++replica) {
      symmetries_.emplace_back(topology, replica);
      auto& links = links_.emplace_back();
      for (unsigned set = 1; set < 1U << ranks_; ++set) {
        std::vector<int> members;
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
          if (holds(static_cast<RankSet>(set), rank)) members.push_back(static_cast<int>(rank));
        }
        links[set] = ring_link(members, replica, topology);
      }
      const auto same = std::find(links_.begin(), links_.end(), links);
      kind_.push_back(static_cast<int>(same - links_.begin()));
    }
  }

  void prepare_sets() {
    for (unsigned set = 1; set < 1U << ranks_; ++set) {
      const int size = std::popcount(set);
      if (size == 1 || options_.elastic || at(size) == ranks_) sets_.push_back(static_cast<RankSet>(set));
    }
  }

  void prepare_sequences() {
    for (const int sequence : order_) {
      auto& shards = shards_.emplace_back();
      for (const RankSet set : sets_) {
        Shard& shard = shards[at(size_of(set))];
        if (shard.exact) continue;
        const ShardCosts& exact = costs_.shards(sequence, size_of(set));
        shard.exact = &exact;
        shard.tokens = *std::min_element(exact.tokens.begin(), exact.tokens.end());
        shard.attention_forward = *std::min_element(exact.attention_forward.begin(), exact.attention_forward.end());
        shard.hop_bytes = exact.hop_bytes;
        shard.fits = exact.most_tokens <= request_.bucket_tokens;
        shard.work = cost_.attention_weight() * shard.attention_forward * size_of(set);
      }
      for (const auto& links : links_) {
        for (const RankSet set : sets_) {
          Shard& shard = shards[at(size_of(set))];
          if (!shard.fits) continue;
          shard.alone[at(links[set])] = seconds_alone(*shard.exact, size_of(set), links[set]);
          shard.least_alone = std::min(shard.least_alone, shard.alone[at(links[set])]);
        }
      }
    }
  }

  double seconds_alone(const ShardCosts& shards, int size, Link link) const {
    const RingHops hops = cost_.ring_hops(size, shards.hop_bytes, link);
    double slowest = 0.0;
    for (std::size_t position = 0; position < at(size); ++position) {
      const double attention = shards.attention_forward[position];
      const double linear = linear_.seconds(shards.tokens[position]);
      slowest = std::max(slowest, size == 1 ? cost_.rank_seconds(linear, true, attention, {})
                                            : cost_.rank_seconds(linear, false, 0.0, cost_.ring_time(hops, attention)));
    }
    return slowest;
  }

  void prepare_slots() {
    for (int replica = 0; replica < request_.topology.data_parallel; ++replica) {
      for (int k = 0; k < count_; ++k) {
        Slot& slot = slots_.emplace_back();
        slot.replica = replica;
        slot.symmetry = symmetries_[at(replica)].all();
        for (SearchRank& rank : slot.ranks) {
          rank.seconds = rank.work = cost_.micro_batch_overhead();
          rank.slope = linear_.least_slope(0);
        }
      }
    }
    begun_.assign(symmetries_.size(), 0);
    replica_seconds_.assign(symmetries_.size(), 0.0);
    placed_.resize(at(count_));
  }

  void set_limit(double seconds) {
    limit_ = seconds;
    update_remaining();
  }

  /// The least that sequences k, k + 1, .. add in any schedule below the limit.
  void update_remaining() {
    remaining_work_.assign(at(count_) + 1, 0.0);
    remaining_tokens_.assign(at(count_) + 1, 0);
    smallest_.assign(at(count_) + 1, {});
    for (std::size_t k = at(count_); k-- > 0;) {
      double work = infinity;
      std::int64_t tokens = std::numeric_limits<std::int64_t>::max();
      SmallestShard& smallest = smallest_[k] = smallest_[k + 1];
      for (std::size_t size = 1; size <= ranks_; ++size) {
        const Shard& shard = shards_[k][size];
        if (shard.least_alone >= limit_) continue;
        work = std::min(work, shard.work);
        tokens = std::min(tokens, shard.tokens * static_cast<std::int64_t>(size));
        smallest.tokens = std::min(smallest.tokens, shard.tokens);
        smallest.attention = std::min(smallest.attention, cost_.attention_weight() * shard.attention_forward);
        smallest.alone = std::min(smallest.alone, shard.least_alone);
      }
      remaining_work_[k] = remaining_work_[k + 1] + work;
      remaining_tokens_[k] = work < infinity ? remaining_tokens_[k + 1] + tokens : remaining_tokens_[k + 1];
    }
  }

  RingTime ring_time(const SearchRing& ring, const Shard& shard, RankSet ranks, Link link) const {
    const RingHops hops = cost_.ring_hops(size_of(ranks), ring.hop_bytes + shard.hop_bytes, link);
    return cost_.ring_time(hops, ring.attention_forward + shard.attention_forward);
  }

  /// The rank with one sequence more, whose ring took `before` and takes `after`.
  SearchRank with(SearchRank rank, const Shard& shard, RankSet ranks, const RingTime& before,
                  const RingTime& after) const {
    rank.tokens += shard.tokens;
    if (size_of(ranks) == 1) {
      rank.has_local = true;
      rank.local_forward += shard.attention_forward;
    } else {
      rank.rings -= before;
      rank.rings += after;
    }
    const double linear = linear_.seconds(rank.tokens);
    const RingTime kernels{rank.rings.compute_forward, rank.rings.compute_backward, 0.0, 0.0};
    rank.seconds = cost_.rank_seconds(linear, rank.has_local, rank.local_forward, rank.rings);
    rank.work = cost_.rank_seconds(linear, rank.has_local, rank.local_forward, kernels);
    rank.slope = linear_.least_slope(rank.tokens);
    return rank;
  }

  Totals totals() const {
    Totals totals;
    for (std::size_t replica = 0; replica < begun_.size(); ++replica) {
      if (begun_[replica] > 0) ++totals.replicas;
      for (int k = 0; k < begun_[replica]; ++k) {
        const SlotSums& sums = slots_[replica * at(count_) + at(k)].sums;
        totals.work += sums.work;
        totals.free_tokens += request_.bucket_tokens * static_cast<std::int64_t>(ranks_) - sums.tokens;
      }
    }
    return totals;
  }

  /// The least slope of linear seconds on all ranks but those of one micro-batch.
  double least_slope_without(int slot_index) const {
    double least = linear_.least_slope(0);
    for (std::size_t replica = 0; replica < begun_.size(); ++replica) {
      for (int k = 0; k < begun_[replica]; ++k) {
        const std::size_t index = replica * at(count_) + at(k);
        if (index != at(slot_index)) least = std::min(least, slots_[index].sums.slope);
      }
    }
    return least;
  }

  /// No schedule in which sequences `next`, next + 1, .. join the work in `totals` is shorter.
  double work_bound(const Totals& totals, double slope, int next) const {
    const auto ranks = static_cast<double>(ranks_);
    const std::int64_t tokens = remaining_tokens_[at(next)];
    const double capacity = static_cast<double>(request_.bucket_tokens) * ranks;
    const double missing = static_cast<double>(tokens - totals.free_tokens);
    const double new_slots = missing > 0.0 ? std::ceil(missing / capacity) : 0.0;
    const double linear = tokens > 0 ? slope * static_cast<double>(tokens) : 0.0;
    const double work = totals.work + remaining_work_[at(next)] + linear;
    double least = infinity;
    for (int replicas = std::max(1, totals.replicas); replicas <= request_.topology.data_parallel; ++replicas) {
      const double begun = std::max(new_slots, static_cast<double>(replicas - totals.replicas));
      least = std::min(least, (work + begun * ranks * cost_.micro_batch_overhead()) / (ranks * replicas));
    }
    return least;
  }

  /// Whether a rank of a micro-batch that may last `limit` could take any of the sequences yet to come.
  bool can_take(const SearchRank& rank, const SmallestShard& smallest, double limit) const {
    if (smallest.tokens > request_.bucket_tokens - rank.tokens) return false;
    const double linear = linear_.seconds(rank.tokens + smallest.tokens) - linear_.seconds(rank.tokens);
    return rank.seconds + linear < limit && rank.work + linear + smallest.attention < limit;
  }

  bool can_begin(std::size_t replica, const SmallestShard& smallest) const {
    return replica_seconds_[replica] + smallest.alone < limit_;
  }

  /// Takes the time and room of ranks that can take no more in any schedule below the limit off what is free.
  void close_full_ranks(std::size_t replica, const SmallestShard& smallest, Totals& totals) const {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      double work = 0.0;
      double idle = 0.0;  // in the micro-batches where it is full
      bool full = !can_begin(replica, smallest);
      for (int k = 0; k < begun_[replica]; ++k) {
        const Slot& slot = slots_[replica * at(count_) + at(k)];
        const SearchRank& loaded = slot.ranks[rank];
        work += loaded.work;
        if (can_take(loaded, smallest, limit_ - (replica_seconds_[replica] - slot.sums.seconds))) {
          full = false;
        } else {
          idle += slot.sums.seconds - loaded.work;
          totals.free_tokens -= request_.bucket_tokens - loaded.tokens;
        }
      }
      totals.work += full ? limit_ - work : idle;
    }
  }

  /// Whether the sequences from `next` on may fit into the ranks' time below the limit.
  bool may_fit(int next) const {
    const SmallestShard& smallest = smallest_[at(next)];
    Totals totals = this->totals();
    bool can_begin_any = false;
    for (std::size_t replica = 0; replica < begun_.size(); ++replica) {
      if (begun_[replica] > 0) close_full_ranks(replica, smallest, totals);
      can_begin_any = can_begin_any || can_begin(replica, smallest);
    }
    if (!can_begin_any && totals.free_tokens < remaining_tokens_[at(next)]) return false;
    return work_bound(totals, least_slope_without(-1), next) < limit_;
  }

  /// Sequence `next` at this place, with a bound on every schedule that has it there; infinite when it does not fit.
  Child child_at(int next, const Placement& placement, const Totals& before, double other_slope) {
    ++placements_;
    Child child;
    child.placement = placement;
    const Slot& slot = slots_[at(placement.slot)];
    const Shard& shard = shards_[at(next)][at(size_of(placement.ranks))];
    if (!shard.fits) return child;
    const SearchRing& ring = slot.rings[placement.ranks];
    const Link link = links_[at(slot.replica)][placement.ranks];
    const RingTime after = size_of(placement.ranks) == 1 ? RingTime{} : ring_time(ring, shard, placement.ranks, link);
    Totals totals = before;
    double seconds = std::max(slot.sums.seconds, shard.alone[at(link)]);
    double slope = other_slope;
    const bool begins = slot.sequences == 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const SearchRank& old = slot.ranks[rank];
      if (begins) {
        totals.work += old.work;
        totals.free_tokens += request_.bucket_tokens;
      }
      if (!holds(placement.ranks, rank)) {
        slope = std::min(slope, old.slope);
        seconds = std::max(seconds, old.seconds);
        continue;
      }
      if (old.tokens + shard.tokens > request_.bucket_tokens) return child;
      const SearchRank loaded = with(old, shard, placement.ranks, ring.time, after);
      totals.work += loaded.work - old.work;
      totals.free_tokens -= shard.tokens;
      seconds = std::max(seconds, loaded.seconds);
      slope = std::min(slope, loaded.slope);
    }
    if (begins && begun_[at(slot.replica)] == 0) ++totals.replicas;
    child.seconds = replica_seconds_[at(slot.replica)] - slot.sums.seconds + seconds;
    for (const double other : replica_seconds_) child.seconds = std::max(child.seconds, other);
    child.bound = std::max(child.seconds, work_bound(totals, slope, next + 1));
    return child;
  }

  /// Whether the place stands for all that are equal to it.
  bool is_first_of_equals(int next, const Placement& placement) const {
    const Slot& slot = slots_[at(placement.slot)];
    if (!symmetries_[at(slot.replica)].is_first(slot.symmetry, placement.ranks)) return false;
    if (next == 0) return true;
    const bool equal = costs_.length(order_[at(next)]) == costs_.length(order_[at(next - 1)]);
    return !equal || !placement.before(placed_[at(next - 1)]);
  }

  /// Whether an earlier replica that is as empty as this one stands for it.
  bool has_equal_before(std::size_t replica) const {
    if (begun_[replica] > 0) return false;
    for (std::size_t other = 0; other < replica; ++other) {
      if (begun_[other] == 0 && kind_[other] == kind_[replica]) return true;
    }
    return false;
  }

  void find_children(int next, std::vector<Child>& children) {
    children.clear();
    const Totals before = totals();
    for (std::size_t replica = 0; replica < begun_.size(); ++replica) {
      if (has_equal_before(replica)) continue;
      for (int k = 0; k <= std::min(begun_[replica], count_ - 1); ++k) {
        const int slot = static_cast<int>(replica) * count_ + k;
        const double other_slope = least_slope_without(slot);
        for (const RankSet ranks : sets_) {
          const Placement placement{slot, ranks};
          if (!is_first_of_equals(next, placement)) continue;
          const Child child = child_at(next, placement, before, other_slope);
          if (child.bound < limit_) children.push_back(child);
        }
      }
    }
    // Bounds that differ by rounding count as equal.
    const auto key = [](const Child& child) { return std::pair(static_cast<float>(child.bound), child.seconds); };
    std::stable_sort(children.begin(), children.end(), [&](const Child& a, const Child& b) { return key(a) < key(b); });
  }

  /// Tries all places of sequence `next` and those after it.
  void place_from(int next) {
    if (next == count_) {
      complete();
      return;
    }
    check_limits();
    if (stopped_ || (next > 0 && !may_fit(next))) return;
    std::vector<Child>& children = children_[at(next)];
    find_children(next, children);
    for (const Child& child : children) {
      if (child.bound >= limit_) continue;  // a better schedule has been found since
      place_and_go_on(next, child.placement);
      if (stopped_) return;
    }
  }

  void place_and_go_on(int next, const Placement& placement) {
    Slot& slot = slots_[at(placement.slot)];
    const std::size_t replica = at(slot.replica);
    const auto ranks_before = slot.ranks;
    const SearchRing ring_before = slot.rings[placement.ranks];
    const RankSymmetry::Group symmetry_before = slot.symmetry;
    const SlotSums sums_before = slot.sums;
    const double replica_seconds_before = replica_seconds_[replica];

    insert(next, placement);
    place_from(next + 1);

    slot.ranks = ranks_before;
    slot.rings[placement.ranks] = ring_before;
    slot.symmetry = symmetry_before;
    slot.sums = sums_before;
    replica_seconds_[replica] = replica_seconds_before;
    if (--slot.sequences == 0) --begun_[replica];
  }

  void insert(int next, const Placement& placement) {
    Slot& slot = slots_[at(placement.slot)];
    const std::size_t replica = at(slot.replica);
    const Shard& shard = shards_[at(next)][at(size_of(placement.ranks))];
    SearchRing& ring = slot.rings[placement.ranks];
    const RingTime before = ring.time;
    if (size_of(placement.ranks) > 1) {
      ring.time = ring_time(ring, shard, placement.ranks, links_[replica][placement.ranks]);
      ring.attention_forward += shard.attention_forward;
      ring.hop_bytes += shard.hop_bytes;
    }
    if (slot.sequences++ == 0) ++begun_[replica];
    SlotSums sums;
    sums.seconds = std::max(slot.sums.seconds, shard.alone[at(links_[replica][placement.ranks])]);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      SearchRank& loaded = slot.ranks[rank];
      if (holds(placement.ranks, rank)) loaded = with(loaded, shard, placement.ranks, before, ring.time);
      sums.seconds = std::max(sums.seconds, loaded.seconds);
      sums.work += loaded.work;
      sums.slope = std::min(sums.slope, loaded.slope);
      sums.tokens += loaded.tokens;
    }
    replica_seconds_[replica] += sums.seconds - slot.sums.seconds;
    slot.sums = sums;
    slot.symmetry = symmetries_[replica].fixing(slot.symmetry, placement.ranks);
    placed_[at(next)] = placement;
  }

  /// Keeps the schedule when it is the best so far at exact costs.
  void complete() {
    std::vector<Placement> exact = placed_;
    double slowest = 0.0;
    for (std::size_t replica = 0; replica < begun_.size(); ++replica) {
      double seconds = 0.0;
      for (int k = 0; k < begun_[replica] && seconds < limit_; ++k) {
        seconds += choose_permutation(static_cast<int>(replica) * count_ + k, exact);
      }
      slowest = std::max(slowest, seconds);
      if (slowest >= limit_) return;
    }
    best_ = std::move(exact);
    set_limit(slowest * (1.0 - tolerance));
  }

  /// The least exact seconds of a micro-batch over all orders of its ranks; brings `placements` into that order.
  /// Infinite when its tokens fit in none.
  double choose_permutation(int slot_index, std::vector<Placement>& placements) {
    const Slot& slot = slots_[at(slot_index)];
    double least = infinity;
    const RankSymmetry::Permutation* best = nullptr;
    for (const auto& permutation : symmetries_[at(slot.replica)].permutations()) {
      placements_ += slots_[at(slot_index)].sequences;
      const double seconds = exact_seconds(slot_index, permutation, std::min(least, limit_));
      if (seconds < least) {
        least = seconds;
        best = &permutation;
      }
    }
    if (!best) return infinity;
    for (Placement& placement : placements) {
      if (placement.slot == slot_index) placement.ranks = RankSymmetry::image(*best, placement.ranks);
    }
    return least;
  }

  /// Exact seconds of a micro-batch after a permutation of its ranks; infinite when its tokens do not fit or a rank
  /// takes `limit` or longer.
  double exact_seconds(int slot_index, const RankSymmetry::Permutation& permutation, double limit) const {
    struct ExactRing {
      std::array<double, max_ranks> attention_forward{};  ///< per position
      double hop_bytes = 0.0;
    };
    std::array<SearchRank, max_ranks> ranks{};
    std::array<ExactRing, ring_sets> rings{};
    unsigned used = 0;
    for (int k = 0; k < count_; ++k) {
      if (placed_[at(k)].slot != slot_index) continue;
      const RankSet set = RankSymmetry::image(permutation, placed_[at(k)].ranks);
      const ShardCosts& exact = *shards_[at(k)][at(size_of(set))].exact;
      used |= 1U << set;
      rings[set].hop_bytes += exact.hop_bytes;
      std::size_t position = 0;
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (!holds(set, rank)) continue;
        ranks[rank].tokens += exact.tokens[position];
        rings[set].attention_forward[position] += exact.attention_forward[position];
        ++position;
      }
    }
    const int replica = slots_[at(slot_index)].replica;
    for (const RankSet set : sets_) {
      if ((used >> set & 1U) == 0) continue;
      const RingHops hops = cost_.ring_hops(size_of(set), rings[set].hop_bytes, links_[at(replica)][set]);
      std::size_t position = 0;
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (!holds(set, rank)) continue;
        const double attention = rings[set].attention_forward[position++];
        if (size_of(set) == 1) {
          ranks[rank].has_local = true;
          ranks[rank].local_forward = attention;
        } else {
          ranks[rank].rings += cost_.ring_time(hops, attention);
        }
      }
    }
    double slowest = 0.0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const SearchRank& loaded = ranks[rank];
      if (loaded.tokens > request_.bucket_tokens) return infinity;
      slowest = std::max(slowest, cost_.rank_seconds(cost_.linear_seconds(loaded.tokens), loaded.has_local,
                                                     loaded.local_forward, loaded.rings));
      if (slowest >= limit) return infinity;
    }
    return slowest;
  }

  void check_limits() {
    stopped_ = stopped_ || placements_ >= pass_end_;
    constexpr std::int64_t check_interval = 256;  // nodes between looks at the clock
    if (options_.deadline && ++nodes_ % check_interval == 0) {
      stopped_ = stopped_ || std::chrono::steady_clock::now() >= *options_.deadline;
    }
  }

  DraftSchedule best_schedule() const {
    const int replicas = request_.topology.data_parallel;
    int micro_batches = 1;
    for (const Placement& placement : best_) micro_batches = std::max(micro_batches, placement.slot % count_ + 1);
    DraftSchedule schedule(costs_, micro_batches);
    for (std::size_t k = 0; k < best_.size(); ++k) {
      std::vector<int> ranks;
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (holds(best_[k].ranks, rank)) ranks.push_back(static_cast<int>(rank));
      }
      const int replica = best_[k].slot / count_;
      schedule.insert(order_[k], best_[k].slot % count_ * replicas + replica, ranks);
    }
    return schedule;
  }

  const PlacementCosts& costs_;
  const CostModel& cost_;
  const ScheduleRequest& request_;
  const ExactOptions& options_;
  std::size_t ranks_;  ///< of a replica
  std::vector<int> order_;
  int count_;
  std::int64_t most_tokens_;
  LinearFloor linear_;
  std::vector<RankSymmetry> symmetries_;                  ///< per replica
  std::vector<std::array<Link, ring_sets>> links_;        ///< [replica][ranks]
  std::vector<int> kind_;                                 ///< per replica: the first with the same links
  std::vector<RankSet> sets_;                             ///< single ranks and rings
  std::vector<std::array<Shard, max_ranks + 1>> shards_;  ///< [place in the order][ring size]

  std::vector<Slot> slots_;  ///< [replica][micro-batch]; those begun come first
  std::vector<int> begun_;   ///< micro-batches per replica
  std::vector<double> replica_seconds_;
  std::vector<Placement> placed_;  ///< per place in the order
  std::array<std::vector<Child>, exact_most_sequences> children_;

  double limit_;  ///< what a schedule must stay below to be better than the best one
  std::vector<double> remaining_work_;
  std::vector<std::int64_t> remaining_tokens_;
  std::vector<SmallestShard> smallest_;
  std::vector<Placement> best_;
  std::int64_t placements_ = 0;
  std::int64_t pass_end_ = 0;  ///< of placements_
  std::int64_t nodes_ = 0;
  bool stopped_ = false;
};

}  // namespace

bool exact_search_applies(const PlacementCosts& costs) {
  constexpr std::int64_t largest_table = std::int64_t{1} << 20;
  const ScheduleRequest& request = costs.request();
  const Topology& topology = request.topology;
  return request.lengths.size() <= exact_most_sequences &&
         std::int64_t{topology.data_parallel} * topology.context_parallel <= exact_most_ranks &&
         LinearFloor::table_size(costs.cost(), BranchAndBound::most_tokens(request)) <= largest_table;
}

ExactResult exact_search(DraftSchedule known, const ExactOptions& options) {
  require(exact_search_applies(known.costs()), "exact search: the request is too large");
  BranchAndBound search(known, options);
  return search.search(std::move(known));
}

}  // namespace skrull
