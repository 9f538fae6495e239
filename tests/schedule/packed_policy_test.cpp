#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "skrull/core/error.h"
#include "skrull/core/rng.h"
#include "skrull/schedule/scheduler.h"
#include "support/catch.h"
#include "support/cost_model.h"

using namespace skrull;

namespace {

using Sequences = std::vector<std::int64_t>;

ScheduleRequest random_request(Rng& rng) {
  ScheduleRequest request;
  request.topology.data_parallel = 1 + static_cast<int>(rng.below(9));
  request.topology.context_parallel = 1 + static_cast<int>(rng.below(5));
  const std::uint64_t longest = 1 + rng.below(200);
  request.lengths.resize(1 + rng.below(60));
  for (std::int64_t& length : request.lengths) length = 1 + static_cast<std::int64_t>(rng.below(longest));
  std::int64_t least = 1;
  for (const std::int64_t length : request.lengths) {
    least = std::max(least, largest_zigzag_shard(length, request.topology.context_parallel));
  }
  request.bucket_tokens = least + static_cast<std::int64_t>(rng.below(100));
  return request;
}

/// Indices of a micro-batch's sequences, local first.
Sequences sequences_of(const PlannedMicroBatch& micro_batch) {
  Sequences all;
  for (const auto& rank : micro_batch.local) all.insert(all.end(), rank.begin(), rank.end());
  for (const auto& distributed : micro_batch.distributed) all.push_back(distributed.sequence);
  return all;
}

std::string message_of(const ScheduleRequest& request, const std::string& policy = "packed") {
  try {
    test::small_plan(policy, request);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("packed: a worked example") {
  // Loads before each sequence: (0,0) (5,0) (5,3) (5,6) (9,6) -> replicas 0 1 1 0 1.
  const Plan plan = test::small_plan("packed", {{5, 3, 3, 4, 2}, {2, 1, 1}, 8});
  REQUIRE(plan.micro_batch_count() == 2);
  CHECK(plan.micro_batches[0][0].local == std::vector<Sequences>{{0}});
  CHECK(plan.micro_batches[0][1].local == std::vector<Sequences>{{3}});
  CHECK(plan.micro_batches[1][0].local == std::vector<Sequences>{{1, 2, 4}});
  CHECK(plan.micro_batches[1][1].local == std::vector<Sequences>{{}});
  CHECK(plan.policy == "packed");
}

TEST_CASE("packed: a later short sequence fills an earlier micro-batch") {
  const Plan plan = test::small_plan("packed", {{6, 7, 4}, {}, 10});
  REQUIRE(plan.micro_batch_count() == 2);
  CHECK(plan.micro_batches[0][0].local == std::vector<Sequences>{{0, 2}});
  CHECK(plan.micro_batches[0][1].local == std::vector<Sequences>{{1}});
}

TEST_CASE("packed: one sequence and eight replicas") {
  const Plan plan = test::small_plan("packed", {{100}, {8, 1, 8}, 100});
  REQUIRE(plan.micro_batch_count() == 1);
  for (std::size_t replica = 0; replica < 8; ++replica) {
    CHECK(sequences_of(plan.micro_batches[replica][0]).size() == (replica == 0 ? 1 : 0));
  }
  validate_plan(plan);
}

TEST_CASE("packed: context parallelism shares every sequence") {
  // Shards of 7 and 9 tokens over 2 ranks: chunks 2 2 2 1 -> 3, 4; 3 2 2 2 -> 5, 4. Together 8 and 8.
  const ScheduleRequest exact{{7, 9}, {1, 2, 2}, 8};
  const Plan plan = test::small_plan("packed", exact);
  REQUIRE(plan.micro_batch_count() == 1);
  CHECK(plan.micro_batches[0][0].local == std::vector<Sequences>{{}, {}});
  REQUIRE(plan.micro_batches[0][0].distributed.size() == 2);
  CHECK(plan.micro_batches[0][0].distributed[1].sequence == 1);
  CHECK(plan.micro_batches[0][0].distributed[1].ranks == std::vector<int>{0, 1});
  ScheduleRequest tighter = exact;
  tighter.bucket_tokens = 7;
  CHECK(test::small_plan("packed", tighter).micro_batch_count() == 2);
}

TEST_CASE("packed: properties of random requests") {
  Rng rng(1, "packed");
  for (int round = 0; round < 500; ++round) {
    const ScheduleRequest request = random_request(rng);
    const Plan plan = test::small_plan("packed", request);
    REQUIRE_NOTHROW(validate_plan(plan));
    REQUIRE(plan.lengths == request.lengths);
    const auto replicas = static_cast<std::size_t>(request.topology.data_parallel);
    const bool one_rank = request.topology.context_parallel == 1;
    std::vector<std::int64_t> load(replicas);
    std::size_t busy = 0;
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      for (const PlannedMicroBatch& micro_batch : plan.micro_batches[replica]) {
        CHECK((one_rank ? micro_batch.distributed.empty() : micro_batch.local.front().empty()));
        const Sequences sequences = sequences_of(micro_batch);
        CHECK(std::is_sorted(sequences.begin(), sequences.end()));
        for (const auto s : sequences) load[replica] += request.lengths[static_cast<std::size_t>(s)];
      }
      if (load[replica] > 0) ++busy;
    }
    CHECK(busy == std::min(replicas, request.lengths.size()));
    // The rule's bound: when the last sequence of the heaviest replica came, that replica was the lightest.
    const auto longest = *std::max_element(request.lengths.begin(), request.lengths.end());
    CHECK(*std::max_element(load.begin(), load.end()) <= *std::min_element(load.begin(), load.end()) + longest);
    // At most one micro-batch of a replica is half empty under first fit on one rank.
    if (one_rank) {
      for (std::size_t replica = 0; replica < replicas; ++replica) {
        const auto used = std::count_if(plan.micro_batches[replica].begin(), plan.micro_batches[replica].end(),
                                        [](const PlannedMicroBatch& m) { return !sequences_of(m).empty(); });
        CHECK((used - 1) * request.bucket_tokens <= 2 * load[replica]);
      }
    }
    CHECK(test::small_plan("packed", request).micro_batch_count() == plan.micro_batch_count());
  }
}

TEST_CASE("bad requests are refused with what to do") {
  CHECK(message_of({{3, 12}, {1, 1, 1}, 8}).find("sequence 1 has 12 tokens") == 0);
  CHECK(message_of({{3, 12}, {1, 1, 1}, 8}).find("bucket_tokens to at least 12") != std::string::npos);
  // 19 tokens over 3 ranks: chunks 4 3 3 3 3 3.
  CHECK(message_of({{19}, {1, 3, 3}, 6}).find("at least 7") != std::string::npos);
  CHECK(message_of({{3, 0}, {1, 1, 1}, 8}).find("sequence 1 has 0 tokens") == 0);
  CHECK(message_of({{3}, {0, 1, 1}, 8}).find("topology") == 0);
  CHECK(message_of({{3}, {1, 1, 1}, 0}).find("bucket_tokens is 0") == 0);
  CHECK(message_of({{3}, {}, 8}, "pakced") ==
        "unknown scheduling policy \"pakced\" (did you mean \"packed\"?); known: packed");
  CHECK(policy_names().front() == "packed");
}

TEST_CASE("an empty global batch has no micro-batches") {
  const Plan plan = test::small_plan("packed", {{}, {3, 1, 1}, 8});
  CHECK(plan.micro_batch_count() == 0);
  validate_plan(plan);
}
