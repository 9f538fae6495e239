// The exact search of policy skrull against trying everything.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include "schedule_fixture.h"
#include "skrull/construct.h"
#include "skrull/core/rng.h"
#include "skrull/exact.h"
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
  std::size_t most = 0;
  for (const auto& replica : plan.micro_batches) most = std::max(most, replica.size());
  PlannedMicroBatch empty;
  empty.local.resize(static_cast<std::size_t>(request.topology.context_parallel));
  for (auto& replica : plan.micro_batches) replica.resize(most, empty);
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
  const std::vector<CostModel> costs = cost_models();
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

TEST_CASE("exact search: ten sequences on four ranks are proven") {
  const std::vector<CostModel> costs = cost_models();
  Rng rng(5, "ten sequences");
  int proven = 0;
  int all = 0;
  for (const Topology& topology :
       {Topology{1, 4, 8}, Topology{2, 2, 8}, Topology{1, 4, 2}, Topology{1, 3, 8}, Topology{4, 1, 8}}) {
    for (int round = 0; round < 20; ++round) {
      const ScheduleRequest request = random_request(rng, topology, 10);
      const CostModel& cost = costs[static_cast<std::size_t>(round) % costs.size()];
      SearchOptions local;
      local.moves = 0;
      const PlacementCosts placement_costs(request, cost);
      DraftSchedule known = local_search(first_schedule(placement_costs, true), {40000, 0, true, {}});
      const double before = known.schedule_seconds();
      const std::clock_t start = std::clock();
      const ExactResult result = exact_search(std::move(known), {true, 5'000'000, {}});
      const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      std::string lengths;
      for (auto l : request.lengths) lengths += std::to_string(l) + " ";
      std::printf("%dx%d/%d r%d bucket %lld: %s %lld %.1f ms before %.6f after %.6f bound %.6f | %s\n",
                  topology.data_parallel, topology.context_parallel, topology.ranks_per_node, round,
                  (long long)request.bucket_tokens, result.proven ? "proven" : "OPEN", (long long)result.placements, ms,
                  before, result.schedule.schedule_seconds(), lower_bound(request, cost).seconds, lengths.c_str());
      ++all;
      proven += result.proven ? 1 : 0;
    }
  }
  std::printf("proven %d of %d\n", proven, all);
}
