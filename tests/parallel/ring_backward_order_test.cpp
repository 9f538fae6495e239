// What the backward of ring attention computes between the steps of its rings: a table, the best placement by trying
// all, and what holds for any plan.
#include "skrull/parallel/ring_backward_order.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "ring_batches.h"
#include "skrull/core/error.h"
#include "skrull/schedule/zigzag.h"
#include "support/catch.h"

using namespace skrull;
using test::PlannedBatch;

namespace {

using Work = std::vector<double>;

/// When everything is over, with `placed` local work before and after the steps. Work and transfers in the same unit.
double end_of(const Work& placed, const std::vector<StepCost>& steps) {
  double arrival = 0;
  for (const StepCost& step : steps) arrival += step.arrival;
  double link = arrival;
  double arrived = 0;
  double clock = 0;
  Work home;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    arrived += steps[i].arrival;
    clock = std::max({clock + placed[i], arrived, steps[i].steps_over > 0 ? home[steps[i].steps_over - 1] : 0});
    clock += steps[i].work;
    link = std::max(link, clock) + steps[i].gradients;
    home.push_back(link);
  }
  return std::max(clock + placed.back(), link);
}

/// The earliest end over all ways to place `left` units from step `step` on.
double best_end(Work& placed, std::size_t step, int left, const std::vector<StepCost>& steps) {
  if (step + 1 == placed.size()) {
    placed[step] = left;
    return end_of(placed, steps);
  }
  double best = 1e9;
  for (int here = 0; here <= left; ++here) {
    placed[step] = here;
    best = std::min(best, best_end(placed, step + 1, left - here, steps));
  }
  return best;
}

/// Gives transfers the unit of the work: as long in all.
std::vector<StepCost> at_equal_times(std::vector<StepCost> steps, double local_work) {
  double work = local_work;
  double transfers = 0;
  for (const StepCost& step : steps) {
    work += step.work;
    transfers += step.arrival + step.gradients;
  }
  for (StepCost& step : steps) {
    step.arrival *= work / transfers;
    step.gradients *= work / transfers;
  }
  return steps;
}

std::int64_t pairs_of(const AttentionSegment& segment) {
  return segment.q_len * segment.k_len - causal_area(segment.q_len - 1);
}

AttentionSegment causal(std::int64_t begin, std::int64_t length) {
  return {begin, length, begin, length, true};
}

}  // namespace

TEST_CASE("local work runs while arrivals are awaited, and what is left while gradients go home",
          "[ring_backward_order]") {
  struct Row {
    const char* what;
    double local_work;
    std::vector<StepCost> steps;
    Work placed;
  };
  const std::vector<Row> table = {
      {"no rings", 7, {}, {7}},
      {"nothing to transfer", 7, {{3, 0, 0, 0}}, {0, 7}},
      {"no local work", 0, {{3, 1, 2, 0}, {3, 1, 2, 0}}, {0, 0, 0}},
      // Work 12, transfers 3 + 3 + 3 + 3: the second hop has arrived when the first is done.
      {"hops as long as transfers", 6, {{3, 1, 1, 0}, {3, 1, 1, 0}}, {3, 0, 3}},
      // Work 12, transfers of 2 and 4.
      {"gradients twice the bytes", 6, {{3, 1, 2, 0}, {3, 1, 2, 0}}, {2, 0, 4}},
      // Work 12: 3 until each arrival.
      {"short hops", 10, {{1, 1, 1, 0}, {1, 1, 1, 0}}, {3, 2, 5}},
      // Work 16 over 8 transfers of 2: the third waits until the first's gradients are home, at 10.
      {"room for two", 12, {{1, 1, 1, 0}, {1, 1, 1, 0}, {1, 1, 1, 1}, {1, 1, 1, 2}}, {2, 1, 5, 1, 3}},
      {"hops of one round", 8, {{1, 2, 1, 0}, {1, 0, 1, 0}}, {5, 0, 3}},
  };
  for (const Row& row : table) {
    INFO(row.what);
    const Work placed = place_local_work(row.local_work, row.steps);
    REQUIRE(placed.size() == row.placed.size());
    for (std::size_t i = 0; i < placed.size(); ++i) CHECK(placed[i] == Approx(row.placed[i]).margin(1e-12));
  }
}

TEST_CASE("no placement ends earlier when transfers take as long as work", "[ring_backward_order]") {
  Rng rng(5, "placements");
  for (int turn = 0; turn < 200; ++turn) {
    INFO("turn " << turn);
    const int local_work = static_cast<int>(rng.below(13));
    std::vector<StepCost> steps(1 + rng.below(4));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      steps[i] = {static_cast<double>(rng.below(6)), static_cast<double>(rng.below(4)),
                  static_cast<double>(rng.below(6)), i > 1 ? rng.below(i) : 0};
    }
    steps[0].arrival += 1;
    const Work placed = place_local_work(local_work, steps);
    CHECK(std::accumulate(placed.begin(), placed.end(), 0.0) == Approx(local_work));
    CHECK(*std::min_element(placed.begin(), placed.end()) >= 0);
    const std::vector<StepCost> scaled = at_equal_times(steps, local_work);
    Work tried(steps.size() + 1);
    CHECK(end_of(placed, scaled) <= best_end(tried, 0, local_work, scaled) + 1e-9);
  }
}

TEST_CASE("segments are cut at whole slices, into groups of the asked work", "[ring_backward_order]") {
  const std::vector<AttentionSegment> segments = {causal(0, 10), causal(10, 3), causal(13, 4)};
  // 55 + 6 + 10 pairs. Slices of 4 rows: 10 and 45 pairs of the first; the others are too short to be cut.
  const auto groups = cut_into_slices(segments, {12, 44, 8, 7}, 4);
  REQUIRE(groups.size() == 4);
  const auto check = [](const std::vector<AttentionSegment>& group, const std::vector<AttentionSegment>& expected) {
    REQUIRE(group.size() == expected.size());
    for (std::size_t i = 0; i < group.size(); ++i) {
      CHECK(group[i].q_begin == expected[i].q_begin);
      CHECK(group[i].q_len == expected[i].q_len);
      CHECK(group[i].k_begin == expected[i].k_begin);
      CHECK(group[i].k_len == expected[i].k_len);
      CHECK(group[i].causal);
    }
  };
  check(groups[0], {{0, 4, 0, 4, true}});
  check(groups[1], {{4, 6, 0, 10, true}});
  check(groups[2], {causal(10, 3)});
  check(groups[3], {causal(13, 4)});
  check(cut_into_slices(segments, {0, 0, 1}, 4)[2], segments);
  CHECK_THROWS_AS(cut_into_slices({{0, 2, 0, 5, true}}, {1}, 4), RunFailure);
  CHECK_THROWS_AS(cut_into_slices({{0, 2, 0, 2, false}}, {1}, 4), RunFailure);
}

TEST_CASE("slices hold every query of every segment once, with its keys, and are balanced", "[ring_backward_order]") {
  Rng rng(6, "slices");
  for (int turn = 0; turn < 100; ++turn) {
    INFO("turn " << turn);
    constexpr std::int64_t slice_rows = 8;
    std::vector<AttentionSegment> segments;
    std::int64_t rows = 0;
    double pairs = 0;
    double most = 0;  // pairs of what is not cut
    for (std::uint64_t i = 0; i < 1 + rng.below(6); ++i) {
      segments.push_back(causal(rows, 1 + static_cast<std::int64_t>(rng.below(rng.below(2) == 0 ? 20 : 300))));
      rows += segments.back().q_len;
      pairs += static_cast<double>(pairs_of(segments.back()));
      most = std::max(most, static_cast<double>(2 * slice_rows * segments.back().q_len));
    }
    Work work(1 + rng.below(6), 0);
    for (double& part : work) part = pairs / static_cast<double>(work.size());
    const auto groups = cut_into_slices(segments, work, slice_rows);
    REQUIRE(groups.size() == work.size());
    std::int64_t next_row = 0;
    std::int64_t done = 0;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      for (const AttentionSegment& slice : groups[group]) {
        const auto segment = std::find_if(segments.begin(), segments.end(), [&](const AttentionSegment& s) {
          return slice.q_begin >= s.q_begin && slice.q_begin + slice.q_len <= s.q_begin + s.q_len;
        });
        REQUIRE(segment != segments.end());
        CHECK(slice.q_begin == next_row);
        CHECK(slice.k_begin == segment->k_begin);
        CHECK(slice.k_len == slice.q_begin + slice.q_len - segment->q_begin);
        CHECK(slice.causal);
        CHECK((slice.q_begin - segment->q_begin) % slice_rows == 0);
        CHECK(slice.q_len >= std::min(segment->q_len, slice_rows));
        next_row += slice.q_len;
        done += pairs_of(slice);
      }
      const double asked = pairs * static_cast<double>(group + 1) / static_cast<double>(groups.size());
      CHECK(std::abs(static_cast<double>(done) - asked) <= most);
    }
    CHECK(next_row == rows);
    CHECK(static_cast<double>(done) == pairs);
  }
}

TEST_CASE("a rank's backward holds its sequences, own shards and hops once each", "[ring_backward_order]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 7);
    const PlannedBatch planned = test::random_batch(seed, ranks, 8, 1500);
    for (int rank = 0; rank < ranks; ++rank) {
      INFO("seed " << seed << ", rank " << rank << " of " << ranks);
      const RingSchedule schedule = schedule_rings(test::batch_of_rank(planned, rank));
      const RingBackwardOrder order = order_backward(schedule, {test::largest_share(planned), 2});
      REQUIRE(order.local.size() == order.steps.size() + 1);
      std::int64_t rows = 0;
      double local_pairs = 0;
      for (const auto& group : order.local) {
        for (const AttentionSegment& slice : group) {
          CHECK(slice.q_begin == rows);
          rows += slice.q_len;
          local_pairs += static_cast<double>(pairs_of(slice));
        }
      }
      CHECK(rows == schedule.local_rows + schedule.ring_rows);
      double expected = 0;
      for (const auto* list : {&schedule.local, &schedule.own_shards}) {
        for (const AttentionSegment& segment : *list) expected += static_cast<double>(pairs_of(segment));
      }
      CHECK(local_pairs == expected);
      std::size_t hops = 0;
      for (const RingRound& round : schedule.rounds) hops += round.hops.size();
      CHECK(order.steps.size() == hops);
    }
  }
}

TEST_CASE("with room for three hops the fourth waits for the first, and a hop that has no room is refused",
          "[ring_backward_order]") {
  const RingSchedule schedule = schedule_rings(test::batch_of_rank(test::on_one_ring(8, {1600}), 3));
  const RingBackwardOrder order = order_backward(schedule, {600, 1});
  REQUIRE(order.steps.size() == 7);
  for (std::size_t i = 0; i < order.steps.size(); ++i) {
    CHECK(order.steps[i].steps_over == (i < 3 ? 0 : i - 2));
    CHECK(order.steps[i].outbox_begin == static_cast<std::int64_t>(i % 3) * 200);
    CHECK(order.steps[i].inbox_begin == static_cast<std::int64_t>(i % 3) * 200);
  }
  CHECK_THROWS_AS(order_backward(schedule, {199, 1}), RunFailure);
}
