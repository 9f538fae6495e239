// Policy `skrull` and its parts: what the search keeps true, and how good its plans are.

#include <array>
#include <chrono>
#include <cmath>
#include <numeric>

#include "schedule_fixture.h"
#include "skrull/construct.h"
#include "skrull/core/rng.h"
#include "skrull/local_search.h"
#include "skrull/schedule/bound.h"
#include "skrull/schedule/length_generator.h"
#include "skrull/schedule/scheduler.h"
#include "skrull/soft_objective.h"
#include "support/catch.h"

using namespace skrull;
using namespace skrull::test;

namespace {

std::vector<Sequences> drawn(const std::string& name, std::int64_t batches, std::int64_t size) {
  return draw_length_batches(find_length_distribution(name), batches, size, 100'000, 5);
}

double seconds_of(const DraftSchedule& draft) {
  const ScheduleRequest& request = draft.costs().request();
  Plan plan{"", request.topology, request.bucket_tokens, request.lengths, draft.to_micro_batches()};
  even_out(plan);
  validate_plan(plan);
  return schedule_seconds(plan, draft.costs().cost());
}

}  // namespace

TEST_CASE("a draft keeps every rank's time while sequences come and go") {
  const CostModel cost = half_billion_cost();
  const ScheduleRequest request{drawn("chatqa2", 1, 60).front(), {2, 6, 4}, 40'000};
  const PlacementCosts costs(request, cost);
  DraftSchedule draft(costs, 6);
  Rng rng(3, "draft");
  const auto random_place = [&](int sequence, int& micro_batch, std::vector<int>& ranks) {
    for (;;) {
      micro_batch = static_cast<int>(rng.below(12));
      ranks.clear();
      for (int rank = 0; rank < 6; ++rank) {
        if (rng.below(2) == 0) ranks.push_back(rank);
      }
      if (!ranks.empty() && draft.fits(sequence, micro_batch, ranks)) return;
    }
  };
  int micro_batch = 0;
  std::vector<int> ranks;
  for (int sequence = 0; sequence < 60; ++sequence) {
    random_place(sequence, micro_batch, ranks);
    const double predicted = draft.seconds_with(sequence, micro_batch, ranks);
    draft.insert(sequence, micro_batch, ranks);
    double slowest = 0.0;
    for (const int rank : ranks) {
      slowest = std::max(slowest, draft.micro_batch(micro_batch).ranks[static_cast<std::size_t>(rank)].seconds);
    }
    REQUIRE(predicted == Approx(slowest).epsilon(1e-12));
  }
  for (int move = 0; move < 2000; ++move) {
    const int sequence = static_cast<int>(rng.below(60));
    Place old;
    draft.copy_place(sequence, old);
    draft.remove(sequence);
    random_place(sequence, micro_batch, ranks);
    draft.insert(sequence, micro_batch, ranks);
    if (move % 10 == 0) draft.move_micro_batch(static_cast<int>(rng.below(12)), static_cast<int>(rng.below(2)));
    if (move % 100 == 0) REQUIRE(draft.schedule_seconds() == Approx(seconds_of(draft)).epsilon(1e-9));
  }
}

TEST_CASE("the softened objective follows the draft, tells the effect of a move beforehand, and tends to the maximum") {
  const CostModel cost = half_billion_cost();
  const ScheduleRequest request{drawn("wikipedia", 1, 64).front(), {2, 4, 4}, 26'000};
  const PlacementCosts costs(request, cost);
  DraftSchedule draft = construct_schedule(costs, 2, 1.0, true).value();
  SoftObjective objective(draft, 8);
  Rng rng(4, "objective");
  int told = 0;
  for (int move = 0; move < 500; ++move) {
    const int sequence = static_cast<int>(rng.below(64));
    const int target = static_cast<int>(rng.below(4));
    const int rank = static_cast<int>(rng.below(4));
    const int from = draft.micro_batch_of(sequence);
    if (!draft.is_local(sequence) || draft.micro_batch(from).sequences == 1 ||
        draft.micro_batch(target).sequences == 0) {
      continue;
    }
    const int old_rank = draft.rank_of(sequence);
    if (from == target && rank == old_rank) continue;
    const std::array<int, 1> ranks{rank};
    DraftSchedule after = draft;
    after.remove(sequence);
    if (!after.fits(sequence, target, ranks)) continue;
    after.insert(sequence, target, ranks);
    const auto seconds = [&](int index, int of) {
      return after.micro_batch(index).ranks[static_cast<std::size_t>(of)].seconds;
    };
    const double value =
        objective.value_with({from, old_rank, seconds(from, old_rank)}, {target, rank, seconds(target, rank)});
    const double before = objective.value();
    draft.remove(sequence);
    draft.insert(sequence, target, ranks);
    objective.update(from, target);
    REQUIRE(value == Approx(objective.value()).epsilon(1e-7));
    REQUIRE(objective.seconds() == Approx(draft.schedule_seconds()).epsilon(1e-10));
    if (move % 2 == 0) {
      draft.remove(sequence);
      draft.insert(sequence, from, std::array<int, 1>{old_rank});
      objective.revert();
      REQUIRE(objective.value() == before);
    }
    ++told;
  }
  CHECK(told > 100);
  // The p-mean over 2 replicas of sums over p-means over 4 ranks lies within (2 x 4)^(-1/p) of the maximum.
  objective.rebuild(9);
  const double soft = std::pow(objective.value(), 1.0 / objective.exponent());
  CHECK(soft <= 1.0 + 1e-12);
  CHECK(soft >= std::pow(8.0, -1.0 / 512.0));
}

TEST_CASE("local search only improves, and a deadline ends it") {
  const CostModel cost = half_billion_cost();
  for (const char* name : {"wikipedia", "chatqa2"}) {
    const ScheduleRequest request{drawn(name, 1, 128).front(), {2, 8, 8}, 26'000};
    const PlacementCosts costs(request, cost);
    int count = 1;
    std::optional<DraftSchedule> start;
    while (!(start = construct_schedule(costs, count, lower_bound(request, cost).seconds / count, true))) ++count;
    const double before = start->schedule_seconds();
    const DraftSchedule after = local_search(*start, {20'000, 1, true, {}});
    CHECK(after.schedule_seconds() < before);
    CHECK(after.schedule_seconds() == Approx(seconds_of(after)).epsilon(1e-9));
    CHECK(local_search(*start, {20'000, 1, true, {}}).schedule_seconds() == after.schedule_seconds());
    const DraftSchedule none =
        local_search(*start, {INT64_MAX / 1024, 1, true, std::chrono::steady_clock::now() - std::chrono::seconds(1)});
    CHECK(none.schedule_seconds() <= before);
  }
}

TEST_CASE("plans are near the bound and well ahead of packing") {
  const CostModel cost = half_billion_cost();
  struct Case {
    const char* name;
    double gap;
    double over_balanced;
  };
  for (const Case& expected : {Case{"wikipedia", 0.06, 1.25}, Case{"lmsys", 0.06, 1.15}, Case{"chatqa2", 0.05, 1.08}}) {
    double gap = 0.0;
    double ours = 0.0;
    double balanced = 0.0;
    for (const Sequences& lengths : drawn(expected.name, 3, 256)) {
      const ScheduleRequest request{lengths, {4, 8, 8}, 26'000};
      const double seconds = schedule_seconds(make_plan("skrull", request, cost), cost);
      gap += seconds / lower_bound(request, cost).seconds - 1.0;
      ours += seconds;
      balanced += schedule_seconds(make_plan("packed-balanced", request, cost), cost);
    }
    INFO(expected.name << ": gap " << gap / 3.0 << ", over packed-balanced " << balanced / ours);
    CHECK(gap / 3.0 < expected.gap);
    CHECK(balanced / ours > expected.over_balanced);
  }
}

TEST_CASE("the number of threads does not change a plan") {
  const CostModel cost = half_billion_cost();
  const ScheduleRequest request{drawn("chatqa2", 1, 100).front(), {2, 8, 4}, 26'000};
  SearchOptions search;
  search.moves = 30'000;
  const Plan one = make_plan("skrull", request, cost, search);
  search.threads = 3;
  CHECK(same_plan(one, make_plan("skrull", request, cost, search)));
}

TEST_CASE("without elastic rings a sequence is whole or on all ranks") {
  const CostModel cost = half_billion_cost();
  SearchOptions search;
  search.elastic_rings = false;
  search.moves = 20'000;
  const ScheduleRequest request{drawn("chatqa2", 1, 100).front(), {2, 6, 6}, 30'000};
  const Plan plan = make_plan("skrull", request, cost, search);
  std::size_t distributed = 0;
  for (const auto& replica : plan.micro_batches) {
    for (const PlannedMicroBatch& micro_batch : replica) {
      for (const DistributedSequence& sequence : micro_batch.distributed) CHECK(sequence.ranks.size() == 6);
      distributed += micro_batch.distributed.size();
    }
  }
  CHECK(distributed > 0);
  const double rigid = schedule_seconds(plan, cost);
  search.elastic_rings = true;
  CHECK(schedule_seconds(make_plan("skrull", request, cost, search), cost) < rigid);
}

TEST_CASE("rings stay inside a node where links between nodes are slow") {
  const CostModel cost = half_billion_cost();
  // All ranks in one group, four nodes.
  const ScheduleRequest request{drawn("chatqa2", 1, 128).front(), {1, 32, 8}, 26'000};
  const Plan plan = make_plan("skrull", request, cost);
  int inside = 0;
  int across = 0;
  for (const PlannedMicroBatch& micro_batch : plan.micro_batches.front()) {
    for (const DistributedSequence& sequence : micro_batch.distributed) {
      (ring_link(sequence.ranks, 0, request.topology) == Link::intra_node ? inside : across) += 1;
    }
  }
  CHECK(inside > 10 * across);
}

TEST_CASE("a time budget ends the search") {
  const CostModel cost = half_billion_cost();
  const ScheduleRequest request{drawn("chatqa2", 1, 256).front(), {4, 8, 8}, 26'000};
  SearchOptions search;
  search.moves = INT64_MAX / 1000;  // centuries
  search.budget_ms = 20.0;
  CHECK_NOTHROW(validate_plan(make_plan("skrull", request, cost, search)));
}
