// The exact search of policy skrull against trying everything.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "schedule_fixture.h"
#include "skrull/construct.h"
#include "skrull/core/rng.h"
#include "skrull/exact.h"
#include "skrull/linear_floor.h"
#include "skrull/schedule/bound.h"
#include "skrull/schedule/scheduler.h"
#include "support/catch.h"

using namespace skrull;
using namespace skrull::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The least schedule seconds: of every set of sequences in one micro-batch by trying every ring for each, then of
/// every way to spread the sets over micro-batches and replicas.
class BruteForce {
 public:
  BruteForce(const PlacementCosts& costs, bool elastic) : costs_(costs) {
    const Topology& topology = costs.request().topology;
    for (unsigned set = 1; set < 1U << topology.context_parallel; ++set) {
      std::vector<int> ring;
      for (int rank = 0; rank < topology.context_parallel; ++rank) {
        if ((set >> rank & 1U) != 0) ring.push_back(rank);
      }
      const int size = static_cast<int>(ring.size());
      if (size == 1 || elastic || size == topology.context_parallel) rings_.push_back(std::move(ring));
    }
  }

  double seconds() {
    const std::size_t sets = std::size_t{1} << costs_.request().lengths.size();
    std::vector<double> least(sets, infinity);  // of the replicas so far, by the sequences that they have
    least[0] = 0.0;
    for (int replica = 0; replica < costs_.request().topology.data_parallel; ++replica) {
      const std::vector<double> own = replica_seconds(replica);
      std::vector<double> joined(sets, infinity);
      for (std::size_t set = 0; set < sets; ++set) {
        for (std::size_t part = set;; part = (part - 1) & set) {
          joined[set] = std::min(joined[set], std::max(own[part], least[set & ~part]));
          if (part == 0) break;
        }
      }
      least = std::move(joined);
    }
    return least.back();
  }

 private:
  /// Per set of sequences, in any number of micro-batches.
  std::vector<double> replica_seconds(int replica) {
    const std::size_t sets = std::size_t{1} << costs_.request().lengths.size();
    one_.assign(sets, infinity);
    DraftSchedule draft(costs_, 1);
    fill(draft, replica, 0, 0);
    std::vector<double> any(sets, infinity);
    any[0] = 0.0;
    for (std::size_t set = 1; set < sets; ++set) {
      for (std::size_t part = set; part > 0; part = (part - 1) & set) {
        any[set] = std::min(any[set], one_[part] + any[set & ~part]);
      }
    }
    return any;
  }

  void fill(DraftSchedule& draft, int replica, int sequence, std::size_t placed) {
    if (sequence == draft.sequence_count()) {
      one_[placed] = std::min(one_[placed], draft.seconds(replica));
      return;
    }
    fill(draft, replica, sequence + 1, placed);
    for (const std::vector<int>& ring : rings_) {
      if (!draft.fits(sequence, replica, ring)) continue;
      draft.insert(sequence, replica, ring);
      fill(draft, replica, sequence + 1, placed | std::size_t{1} << sequence);
      draft.remove(sequence);
    }
  }

  const PlacementCosts& costs_;
  std::vector<std::vector<int>> rings_;
  std::vector<double> one_;  ///< per set of sequences, in one micro-batch
};

std::int64_t log_uniform(Rng& rng, double least, double most) {
  return static_cast<std::int64_t>(least * std::exp(rng.uniform() * std::log((most + 0.999) / least)));
}

/// Lengths of one order of magnitude or of several; some equal; a bucket that is tight or not.
ScheduleRequest random_request(Rng& rng, const Topology& topology, int sequences) {
  ScheduleRequest request;
  request.topology = topology;
  request.lengths.resize(static_cast<std::size_t>(sequences));
  const double longest = static_cast<double>(log_uniform(rng, 10.0, 1e5));
  const double shortest = rng.below(2) == 0 ? 1.0 : longest / 10.0;
  for (std::int64_t& length : request.lengths) length = log_uniform(rng, shortest, longest);
  if (rng.below(4) == 0) request.lengths.front() = request.lengths.back();
  const std::int64_t most = *std::max_element(request.lengths.begin(), request.lengths.end());
  const std::int64_t least_bucket = largest_zigzag_shard(most, topology.context_parallel);
  const std::uint64_t kind = rng.below(3);
  request.bucket_tokens = kind == 0   ? least_bucket
                          : kind == 1 ? least_bucket + log_uniform(rng, 1.0, static_cast<double>(most))
                                      : 200000;
  return request;
}

/// Any complete schedule.
DraftSchedule first_schedule(const PlacementCosts& costs, bool elastic) {
  for (int micro_batches = 1;; ++micro_batches) {
    auto draft = construct_schedule(costs, micro_batches, 0.0, elastic);
    if (draft) return std::move(*draft);
  }
}

Plan plan_of(const DraftSchedule& draft) {
  const ScheduleRequest& request = draft.costs().request();
  Plan plan{"skrull", request.topology, request.bucket_tokens, request.lengths, draft.to_micro_batches()};
  even_out(plan);
  return plan;
}

std::vector<CostModel> cost_models() {
  const HardwareProfile h100 = find_hardware_profile("h100_4x8");
  return {CostModel(half_billion(), h100), CostModel(seven_billion(), h100),
          CostModel(half_billion(), made_up_cluster(), Recompute::full)};
}

struct Shape {
  Topology topology;
  int sequences;
  int rounds;
};

}  // namespace

TEST_CASE("exact search: equal to trying everything") {
  std::vector<CostModel> costs = cost_models();
  // An efficiency that rises faster than the tokens: more tokens take less time.
  HardwareProfile odd = made_up_cluster();
  odd.linear_efficiency = {{{64, 0.01}, {512, 0.6}, {4096, 0.95}}, LogLogCurve::BelowFirst::proportional};
  costs.emplace_back(half_billion(), odd);
  Rng rng(3, "brute force");
  for (const Shape& shape :
       {Shape{{1, 1, 1}, 5, 20}, Shape{{1, 2, 8}, 6, 60}, Shape{{1, 2, 1}, 6, 40}, Shape{{2, 1, 8}, 6, 30},
        Shape{{4, 1, 2}, 6, 20}, Shape{{1, 3, 2}, 5, 60}, Shape{{2, 2, 8}, 6, 60}, Shape{{2, 2, 3}, 6, 60},
        Shape{{1, 4, 8}, 4, 100}, Shape{{1, 4, 2}, 4, 60}, Shape{{1, 4, 3}, 4, 40}, Shape{{1, 4, 8}, 5, 3}}) {
    for (int round = 0; round < shape.rounds; ++round) {
      const ScheduleRequest request = random_request(rng, shape.topology, shape.sequences);
      const PlacementCosts placement_costs(request, costs[static_cast<std::size_t>(round) % costs.size()]);
      const bool elastic = rng.below(5) > 0;
      const Topology& topology = shape.topology;
      INFO(topology.data_parallel << " x " << topology.context_parallel << ", " << topology.ranks_per_node
                                  << " a node, round " << round << ", bucket " << request.bucket_tokens);
      REQUIRE(exact_search_applies(placement_costs));
      const ExactResult result =
          exact_search(first_schedule(placement_costs, elastic), {elastic, std::int64_t{100'000'000}, {}});
      REQUIRE(result.proven);
      const double least = BruteForce(placement_costs, elastic).seconds();
      const Plan plan = plan_of(result.schedule);
      REQUIRE_NOTHROW(validate_plan(plan));
      const double seconds = schedule_seconds(plan, placement_costs.cost());
      REQUIRE(std::abs(seconds - result.schedule.schedule_seconds()) <= 1e-9 * seconds);
      REQUIRE(std::abs(seconds - least) <= 1e-9 * least);
    }
  }
}

TEST_CASE("exact search: ten sequences on four ranks are proven within the default budget") {
  const std::vector<CostModel> costs = cost_models();
  Rng rng(5, "ten sequences");
  constexpr std::int64_t budget = 8'000'000;
  int proven = 0;
  int better = 0;
  int all = 0;
  for (const Topology& topology : {Topology{1, 4, 8}, Topology{2, 2, 8}, Topology{1, 4, 2}, Topology{4, 1, 8}}) {
    for (int round = 0; round < 40; ++round) {
      const ScheduleRequest request = random_request(rng, topology, 10);
      const PlacementCosts placement_costs(request, costs[static_cast<std::size_t>(round) % costs.size()]);
      const DraftSchedule known = local_search(first_schedule(placement_costs, true), {10000, 0, true, {}});
      const ExactResult result = exact_search(known, {true, budget, {}});
      const double seconds = result.schedule.schedule_seconds();
      REQUIRE(seconds <= known.schedule_seconds());
      REQUIRE(seconds >= lower_bound(request, placement_costs.cost()).seconds * (1.0 - 1e-9));
      REQUIRE_NOTHROW(validate_plan(plan_of(result.schedule)));
      ++all;
      proven += result.proven ? 1 : 0;
      better += seconds < known.schedule_seconds() * (1.0 - 1e-9) ? 1 : 0;
    }
  }
  std::printf("exact search: %d of %d proven, %d better than the local search\n", proven, all, better);
  CHECK(proven * 100 >= all * 95);
}

TEST_CASE("exact search: the policy finds the optimum") {
  const std::vector<CostModel> costs = cost_models();
  Rng rng(8, "policy");
  for (const Topology& topology : {Topology{1, 4, 8}, Topology{2, 2, 8}, Topology{1, 3, 8}}) {
    for (int round = 0; round < 8; ++round) {
      const ScheduleRequest request = random_request(rng, topology, topology.context_parallel == 4 ? 4 : 5);
      const CostModel& cost = costs[static_cast<std::size_t>(round) % costs.size()];
      const Plan plan = make_plan("skrull", request, cost);
      const double least = BruteForce(PlacementCosts(request, cost), true).seconds();
      CHECK(std::abs(schedule_seconds(plan, cost) - least) <= 1e-9 * least);
    }
  }
}

TEST_CASE("exact search: hard to prove, sequences of about one length, and still no more than the budget") {
  const ScheduleRequest request{
      {13673, 14918, 16069, 24845, 15052, 16573, 18290, 15436, 13598, 13423}, {1, 4, 3}, 26000};
  const CostModel cost = cost_models()[1];
  const PlacementCosts placement_costs(request, cost);
  constexpr std::int64_t budget = 1'000'000;
  const ExactResult result = exact_search(first_schedule(placement_costs, true), {true, budget, {}});
  CHECK(result.placements <= budget + 1000);
  CHECK_NOTHROW(validate_plan(plan_of(result.schedule)));
}

TEST_CASE("exact search: a spent budget keeps the schedule known") {
  const CostModel cost = half_billion_cost();
  const ScheduleRequest request{{9000, 8000, 7000, 6500, 6000, 5000, 4000, 3000, 2000, 1000}, {1, 4, 8}, 16000};
  const PlacementCosts placement_costs(request, cost);
  const DraftSchedule known = first_schedule(placement_costs, true);
  const ExactResult none = exact_search(known, {true, 0, {}});
  CHECK(!none.proven);
  CHECK(none.schedule.schedule_seconds() == known.schedule_seconds());
  const ExactResult some = exact_search(known, {true, 20000, {}});
  const ExactResult again = exact_search(known, {true, 20000, {}});
  CHECK(some.schedule.schedule_seconds() <= known.schedule_seconds());
  CHECK(some.placements < 30000);
  CHECK(some.placements == again.placements);
  CHECK(some.schedule.schedule_seconds() == again.schedule.schedule_seconds());
}

TEST_CASE("exact search: large requests are declined") {
  const CostModel cost = half_billion_cost();
  const auto applies = [&](std::size_t sequences, const Topology& topology) {
    const ScheduleRequest request{Sequences(sequences, 100), topology, 1000};
    return exact_search_applies(PlacementCosts(request, cost));
  };
  CHECK(applies(10, {1, 4, 8}));
  CHECK(applies(10, {2, 2, 8}));
  CHECK(!applies(11, {1, 4, 8}));
  CHECK(!applies(10, {1, 5, 8}));
  CHECK(!applies(10, {3, 2, 8}));
}

TEST_CASE("another sequence never shortens a rank") {
  // What the exact search relies on; where linear seconds rise with the tokens.
  const std::vector<CostModel> costs = cost_models();
  Rng rng(12, "monotone");
  for (int round = 0; round < 300; ++round) {
    ScheduleRequest request = random_request(rng, {1, 4, 1 + static_cast<int>(rng.below(4))}, 12);
    request.bucket_tokens = 12 * 100000;
    const PlacementCosts placement_costs(request, costs[static_cast<std::size_t>(round) % costs.size()]);
    DraftSchedule draft(placement_costs, 1);
    std::vector<double> before(4, 0.0);
    for (int sequence = 0; sequence < 12; ++sequence) {
      std::vector<int> ranks;
      while (ranks.empty()) {
        for (int rank = 0; rank < 4; ++rank) {
          if (rng.below(2) == 0) ranks.push_back(rank);
        }
      }
      draft.insert(sequence, 0, ranks);
      for (std::size_t rank = 0; rank < 4; ++rank) {
        const double seconds = draft.micro_batch(0).ranks[rank].seconds;
        REQUIRE(seconds >= before[rank] * (1.0 - 1e-12));
        before[rank] = seconds;
      }
    }
  }
}

TEST_CASE("linear floor: below what any addition costs") {
  for (const CostModel& cost : cost_models()) {
    for (const std::int64_t most : {1, 7, 300, 20000}) {
      const LinearFloor floor(cost, most);
      Rng rng(2, "linear floor");
      for (int round = 0; round < 2000; ++round) {
        const auto tokens = static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(most)));
        const auto more = 1 + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(most - tokens)));
        REQUIRE(floor.seconds(tokens) <= cost.linear_seconds(tokens + more));
        const double added = floor.seconds(tokens + more) - floor.seconds(tokens);
        REQUIRE(floor.least_slope(tokens) * static_cast<double>(more) <= added + 1e-12 * cost.linear_seconds(most));
      }
    }
  }
}
