#include <algorithm>
#include <string>
#include <vector>

#include "replica_dealing.h"
#include "schedule_fixture.h"
#include "skrull/core/error.h"
#include "skrull/core/rng.h"
#include "skrull/schedule/scheduler.h"
#include "skrull/schedule/sorted_batches.h"
#include "support/catch.h"

using namespace skrull;
using namespace skrull::test;

namespace {

Plan plan_by(const std::string& policy, const ScheduleRequest& request) {
  Plan plan = make_plan(policy, request, half_billion_cost());
  validate_plan(plan);
  return plan;
}

/// [replica][micro-batch]: its sequences, ascending.
std::vector<std::vector<Sequences>> layout_of(const Plan& plan) {
  std::vector<std::vector<Sequences>> all;
  for (const auto& replica : plan.micro_batches) {
    auto& micro_batches = all.emplace_back();
    for (const auto& micro_batch : replica) micro_batches.push_back(sequences_of(micro_batch));
  }
  return all;
}

std::string message_of(const ScheduleRequest& request, const std::string& policy = "packed") {
  try {
    make_plan(policy, request, half_billion_cost());
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

using Layout = std::vector<std::vector<Sequences>>;

}  // namespace

TEST_CASE("packed: contiguous blocks, first fit in arrival order") {
  // Five sequences over two replicas: 0 1 2 and 3 4.
  const Plan plan = plan_by("packed", {{5, 4, 3, 4, 2}, {2, 1, 1}, 8});
  CHECK(layout_of(plan) == Layout{{{0, 2}, {1}}, {{3, 4}, {}}});
  CHECK(plan.policy == "packed");
}

TEST_CASE("packed: a later short sequence fills the first micro-batch with room") {
  CHECK(layout_of(plan_by("packed", {{6, 7, 8, 3, 4, 2}, {}, 10})) == Layout{{{0, 3}, {1, 5}, {2}, {4}}});
}

TEST_CASE("packed: fewer sequences than replicas") {
  const Plan plan = plan_by("packed", {{100, 50}, {4, 1, 8}, 100});
  CHECK(layout_of(plan) == Layout{{{0}}, {{1}}, {{}}, {{}}});
}

TEST_CASE("packed: context parallelism shards every sequence, with exact sizes") {
  // Shards of 7 and 9 tokens over 2 ranks: chunks 2 2 2 1 -> 3, 4; 3 2 2 2 -> 5, 4. Together 8 and 8.
  const ScheduleRequest exact{{7, 9}, {1, 2, 2}, 8};
  const Plan plan = plan_by("packed", exact);
  REQUIRE(plan.micro_batch_count() == 1);
  CHECK(plan.micro_batches[0][0].local == std::vector<Sequences>{{}, {}});
  REQUIRE(plan.micro_batches[0][0].distributed.size() == 2);
  CHECK(plan.micro_batches[0][0].distributed[1].sequence == 1);
  CHECK(plan.micro_batches[0][0].distributed[1].ranks == std::vector<int>{0, 1});
  ScheduleRequest tighter = exact;
  tighter.bucket_tokens = 7;
  CHECK(plan_by("packed", tighter).micro_batch_count() == 2);
}

TEST_CASE("packed: rounding to ring position 0 does not overflow it at exactly C N tokens") {
  // 16 sequences of 17 tokens over 8 ranks fill 34 tokens per rank on average, but position 0 holds 3 of each.
  const ScheduleRequest request{Sequences(16, 17), {1, 8, 8}, 34};
  CHECK(layout_of(plan_by("packed", request)) == Layout{{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {11, 12, 13, 14, 15}}});
  // Of 15 tokens position 0 holds 1 and the others 2.
  const ScheduleRequest short_ones{Sequences(10, 15), {1, 8, 8}, 20};
  CHECK(plan_by("packed", short_ones).micro_batch_count() == 1);
}

TEST_CASE("packed: first fit is what a plain scan finds") {
  Rng rng(5, "first fit");
  for (int round = 0; round < 300; ++round) {
    const int ranks = 1 + static_cast<int>(rng.below(9));
    ScheduleRequest request{Sequences(1 + rng.below(80)), {1, ranks, ranks}, 0};
    const std::uint64_t longest = 1 + rng.below(300);
    for (auto& length : request.lengths) length = 1 + static_cast<std::int64_t>(rng.below(longest));
    const auto most = *std::max_element(request.lengths.begin(), request.lengths.end());
    request.bucket_tokens = largest_zigzag_shard(most, ranks) + static_cast<std::int64_t>(rng.below(60));
    std::vector<Sequences> expected;
    std::vector<Sequences> tokens;
    for (std::size_t k = 0; k < request.lengths.size(); ++k) {
      Sequences shards;
      for (int i = 0; i < ranks; ++i) shards.push_back(zigzag_shard_length(request.lengths[k], ranks, i));
      std::size_t place = 0;
      const auto fits = [&] {
        for (std::size_t i = 0; i < shards.size(); ++i) {
          if (tokens[place][i] + shards[i] > request.bucket_tokens) return false;
        }
        return true;
      };
      while (place < tokens.size() && !fits()) ++place;
      if (place == tokens.size()) {
        tokens.emplace_back(shards.size());
        expected.emplace_back();
      }
      for (std::size_t i = 0; i < shards.size(); ++i) tokens[place][i] += shards[i];
      expected[place].push_back(static_cast<std::int64_t>(k));
    }
    REQUIRE(layout_of(plan_by("packed", request)) == Layout{expected});
  }
}

TEST_CASE("packed-balanced: replicas balanced by cost before packing") {
  // Packed puts both long ones on replica 0. By cost: 0 -> replica 0, 1 -> replica 1, 3 and 2 to the lighter one.
  const ScheduleRequest request{{30000, 29000, 1000, 2000}, {2, 1, 1}, 40000};
  CHECK(layout_of(plan_by("packed", request)) == Layout{{{0}, {1}}, {{2, 3}, {}}});
  CHECK(layout_of(plan_by("packed-balanced", request)) == Layout{{{0}}, {{1, 2, 3}}});
}

TEST_CASE("packed-balanced counts attention, not tokens") {
  // 60000 tokens in one sequence cost more than 64000 in sixteen.
  Sequences lengths(16, 4000);
  lengths.insert(lengths.begin(), 60000);
  const Plan plan = plan_by("packed-balanced", {lengths, {2, 1, 1}, 100000});
  REQUIRE(plan.micro_batch_count() == 1);
  CHECK(layout_of(plan)[0][0] == Sequences{0});
}

TEST_CASE("deepspeed: one sequence per micro-batch, dealt cyclically, on all CP ranks") {
  const Plan plan = plan_by("deepspeed", {{5, 1, 3, 4, 2}, {2, 2, 2}, 8});
  CHECK(layout_of(plan) == Layout{{{0}, {2}, {4}}, {{1}, {3}, {}}});
  CHECK(plan.micro_batches[0][1].distributed[0].ranks == std::vector<int>{0, 1});
  const Plan local = plan_by("deepspeed", {{5, 1, 3}, {1, 1, 1}, 8});
  CHECK(local.micro_batches[0][0].local == std::vector<Sequences>{{0}});
}

TEST_CASE("sorted: neighbouring lengths at the same time, longest first") {
  CHECK(layout_of(plan_by("sorted", {{5, 1, 3, 4, 2}, {2, 2, 2}, 8})) == Layout{{{0}, {2}, {1}}, {{3}, {4}, {}}});
  // Equal lengths keep their order.
  CHECK(layout_of(plan_by("sorted", {{3, 3, 3}, {2, 1, 1}, 8})) == Layout{{{0}, {2}}, {{1}, {}}});
}

TEST_CASE("sorted batches: the pool cut into consecutive batches, in seeded order") {
  const std::vector<Sequences> batches = {{9, 1, 5, 7}, {2, 8, 4, 6}, {3, 10}};
  auto regrouped = sorted_batches(batches, 1);
  REQUIRE(regrouped.size() == 3);
  CHECK(sorted_batches(batches, 1) == regrouped);
  bool seed_matters = false;
  for (std::uint64_t seed = 2; seed < 10; ++seed)
    seed_matters = seed_matters || sorted_batches(batches, seed) != regrouped;
  CHECK(seed_matters);
  std::sort(regrouped.begin(), regrouped.end());
  CHECK(regrouped == std::vector<Sequences>{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}});
  CHECK(sorted_batches({}, 1).empty());
}

TEST_CASE("dealing to replicas") {
  CHECK(deal_in_blocks(7, 3) == ReplicaSequences{{0, 1, 2}, {3, 4}, {5, 6}});
  CHECK(deal_in_blocks(1, 3) == ReplicaSequences{{0}, {}, {}});
  CHECK(deal_cyclically(5, 3) == ReplicaSequences{{0, 3}, {1, 4}, {2}});
  // 7 -> 0; 5 -> 1; 4 -> 1 (5 < 7); 3 -> 0; then 10 : 9, so 2 -> 1.
  CHECK(deal_by_cost(std::vector<double>{4, 2, 7, 3, 5}, 2) == ReplicaSequences{{2, 3}, {0, 1, 4}});
  CHECK(deal_by_cost(std::vector<double>{1, 1, 1}, 2) == ReplicaSequences{{0, 2}, {1}});
}

TEST_CASE("bad requests are refused with what to do") {
  CHECK(message_of({{3, 12}, {1, 1, 1}, 8}).find("sequence 1 has 12 tokens") == 0);
  CHECK(message_of({{3, 12}, {1, 1, 1}, 8}).find("bucket_tokens to at least 12") != std::string::npos);
  // 19 tokens over 3 ranks: chunks 4 3 3 3 3 3.
  CHECK(message_of({{19}, {1, 3, 3}, 6}).find("at least 7") != std::string::npos);
  CHECK(message_of({{3, 0}, {1, 1, 1}, 8}).find("sequence 1 has 0 tokens") == 0);
  CHECK(message_of({{3}, {0, 1, 1}, 8}).find("topology") == 0);
  CHECK(message_of({{3}, {1, 1, 1}, 0}).find("bucket_tokens is 0") == 0);
  CHECK(message_of({{3}, {}, 8}, "pakced")
            .find("unknown scheduling policy \"pakced\" (did you mean \"packed\"?); known: ") == 0);
}

TEST_CASE("an empty global batch has no micro-batches") {
  for (const std::string& policy : policy_names()) {
    INFO(policy);
    CHECK(plan_by(policy, {{}, {3, 1, 1}, 8}).micro_batch_count() == 0);
  }
}
