#include "skrull/schedule/comparison.h"

#include "schedule_fixture.h"
#include "skrull/core/error.h"
#include "skrull/schedule/bound.h"
#include "support/catch.h"

using namespace skrull;
using namespace skrull::test;

TEST_CASE("policies side by side: means over the batches") {
  const CostModel cost = half_billion_cost();
  const Topology topology{2, 2, 2};
  const std::vector<Sequences> batches = {{9000, 300, 4000, 500}, {700, 12000, 100, 5000}};
  const auto seconds = [&](const std::string& policy, const Sequences& lengths) {
    return schedule_seconds(make_plan(policy, {lengths, topology, 8000}, cost), cost);
  };
  const auto summaries = compare_policies({"packed", "deepspeed"}, batches, topology, 8000, cost);
  REQUIRE(summaries.size() == 2);
  for (const PolicySummary& summary : summaries) {
    const double first = seconds(summary.policy, batches[0]);
    const double second = seconds(summary.policy, batches[1]);
    const double first_gap = first / lower_bound({batches[0], topology, 8000}, cost).seconds - 1.0;
    const double second_gap = second / lower_bound({batches[1], topology, 8000}, cost).seconds - 1.0;
    CHECK(summary.schedule_seconds == Approx((first + second) / 2));
    CHECK(summary.step_seconds == Approx((first + second) / 2));
    CHECK(summary.mean_gap == Approx((first_gap + second_gap) / 2));
    CHECK(summary.worst_gap == Approx(std::max(first_gap, second_gap)));
    CHECK(summary.distributed_share == 1.0);
    CHECK(summary.longest_scheduling >= summary.scheduling_seconds);
  }
  CHECK(summaries[0].policy == "packed");
  CHECK(summaries[0].micro_batches == 2.0);
  // Packed: 4650 tokens a rank of {9000, 300}; 6350 of {700, 12000}.
  CHECK(summaries[0].peak_tokens == 6350);
  CHECK(summaries[1].micro_batches == 4.0);
  CHECK(summaries[1].peak_tokens == 6000);
}

TEST_CASE("sorted is compared on its own choice of batches") {
  const CostModel cost = half_billion_cost();
  const std::vector<Sequences> batches = {{9000, 10}, {9000, 10}};
  // Regrouped {10, 10} and {9000, 9000}: two replicas are balanced, which the given batches forbid.
  const auto summaries = compare_policies({"deepspeed", "sorted"}, batches, {2, 1, 1}, 9000, cost);
  CHECK(summaries[1].schedule_seconds < 0.6 * summaries[0].schedule_seconds);
}

TEST_CASE("a comparison refuses what no policy can plan") {
  const CostModel cost = half_billion_cost();
  CHECK_THROWS_AS(compare_policies({"packed"}, {}, {1, 1, 1}, 8, cost), InvalidInput);
  CHECK_THROWS_WITH(compare_policies({"packed"}, {{3}, {2, 12}}, {1, 1, 1}, 8, cost),
                    Catch::Matchers::ContainsSubstring("sequence 1 has 12 tokens"));
}
