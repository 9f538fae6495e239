// What holds for every policy on any input: 10,000 random requests in all.

#include <algorithm>
#include <cmath>
#include <ctime>
#include <string>
#include <vector>

#include "schedule_fixture.h"
#include "skrull/core/rng.h"
#include "skrull/schedule/bound.h"
#include "skrull/schedule/scheduler.h"
#include "support/catch.h"

using namespace skrull;
using namespace skrull::test;

namespace {

/// Between 1 and `most`, every order of magnitude about as likely as the others.
std::int64_t log_uniform(Rng& rng, double most) {
  return static_cast<std::int64_t>(std::exp(rng.uniform() * std::log(most + 0.999)));
}

ScheduleRequest random_request(Rng& rng, double most_sequences, double most_ranks) {
  ScheduleRequest request;
  request.topology.data_parallel = 1 + static_cast<int>(rng.below(8));
  request.topology.context_parallel = static_cast<int>(log_uniform(rng, most_ranks));
  request.topology.ranks_per_node = 1 + static_cast<int>(rng.below(8));
  request.lengths.resize(static_cast<std::size_t>(log_uniform(rng, most_sequences)));
  // Few distinct lengths in some, all equal in others, up to a million tokens.
  const double longest = static_cast<double>(log_uniform(rng, 1e6));
  const bool all_equal = rng.below(10) == 0;
  for (std::int64_t& length : request.lengths) length = log_uniform(rng, longest);
  if (all_equal) std::fill(request.lengths.begin(), request.lengths.end(), request.lengths.front());
  const std::int64_t most = *std::max_element(request.lengths.begin(), request.lengths.end());
  const std::int64_t least_bucket = largest_zigzag_shard(most, request.topology.context_parallel);
  request.bucket_tokens = least_bucket;  // as tight as can be in a quarter of the cases
  if (rng.below(4) > 0) request.bucket_tokens += log_uniform(rng, 3.0 * static_cast<double>(most)) - 1;
  return request;
}

void check_policies(const ScheduleRequest& request, const CostModel& cost) {
  SearchOptions search;
  search.moves = 200;  // properties hold for any
  const double bound = lower_bound(request, cost).seconds;
  double balanced = 0.0;
  double ours = 0.0;
  INFO(request.lengths.size() << " sequences, DP " << request.topology.data_parallel << ", CP "
                              << request.topology.context_parallel << ", bucket " << request.bucket_tokens);
  for (const std::string& policy : policy_names()) {
    INFO(policy);
    const Plan plan = make_plan(policy, request, cost, search);
    REQUIRE_NOTHROW(validate_plan(plan));
    REQUIRE(plan.lengths == request.lengths);
    REQUIRE(plan.bucket_tokens == request.bucket_tokens);
    REQUIRE(same_plan(plan, make_plan(policy, request, cost, search)));
    const double seconds = schedule_seconds(plan, cost);
    REQUIRE(seconds >= bound * (1.0 - 1e-9));
    if (policy == "packed-balanced") balanced = seconds;
    if (policy == "skrull") ours = seconds;
  }
  REQUIRE(ours <= balanced * (1.0 + 1e-12));
}

void check_random_policies(const std::string& stream, int rounds, double most_sequences, double most_ranks) {
  Rng rng(7, stream);
  const CostModel small(half_billion(), made_up_cluster());
  const CostModel large(seven_billion(), made_up_cluster(), Recompute::full);
  for (int round = 0; round < rounds; ++round) {
    check_policies(random_request(rng, most_sequences, most_ranks), round % 2 == 0 ? small : large);
  }
}

/// Processor time, so that other programs on the machine do not count.
}  // namespace

TEST_CASE("every policy: valid, deterministic, not below the bound; small requests") {
  check_random_policies("small", 9000, 30.0, 12.0);
}

TEST_CASE("every policy: valid, deterministic, not below the bound; medium requests") {
  check_random_policies("medium", 850, 200.0, 64.0);
}

TEST_CASE("every policy: valid, deterministic, not below the bound; large requests") {
  check_random_policies("large", 150, 2000.0, 64.0);
}
