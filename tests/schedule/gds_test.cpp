#include "gds.h"

#include <vector>

#include "schedule_fixture.h"
#include "support/catch.h"

using namespace skrull;
using namespace skrull::test;

namespace {

std::vector<PlannedMicroBatch> cut(const Sequences& lengths, int ranks, std::int64_t bucket_tokens) {
  const std::vector<double> flops(lengths.begin(), lengths.end());
  Sequences all;
  for (std::size_t k = 0; k < lengths.size(); ++k) all.push_back(static_cast<std::int64_t>(k));
  return stride_micro_batches({lengths, flops, ranks, bucket_tokens}, all);
}

std::vector<Sequences> all_sequences_of(const std::vector<PlannedMicroBatch>& micro_batches) {
  std::vector<Sequences> all;
  for (const auto& micro_batch : micro_batches) all.push_back(sequences_of(micro_batch));
  return all;
}

}  // namespace

TEST_CASE("GDS: every m-th sequence of the ascending order") {
  // 22 tokens, 20 fit: m = 2, ascending order 1 3 0 4 2. Micro-batch 0: 2 tokens on rank 0, 4 on rank 1, 10 on both.
  const auto micro_batches = cut({4, 2, 10, 2, 4}, 2, 10);
  REQUIRE(micro_batches.size() == 2);
  CHECK(micro_batches[0].local == std::vector<Sequences>{{1}, {0}});
  CHECK(distributed_of(micro_batches[0]) == Sequences{2});
  CHECK(micro_batches[1].local == std::vector<Sequences>{{3}, {4}});
  CHECK(micro_batches[1].distributed.empty());
}

TEST_CASE("GDS: a stride above C N makes one micro-batch more") {
  // 18 tokens, 10 fit: m = 2 would put 6 + 6 tokens together.
  CHECK(all_sequences_of(cut({6, 6, 6}, 2, 5)) == std::vector<Sequences>{{0}, {1}, {2}});
}

TEST_CASE("GDS: DACP's failure makes more micro-batches") {
  // m = 2 and m = 3 pair a single token with 9 (5 and 4): exactly 10 tokens, but the token always lies on rank 0.
  CHECK(all_sequences_of(cut({1, 1, 9, 9}, 2, 5)) == std::vector<Sequences>{{0}, {1}, {2}, {3}});
}

TEST_CASE("GDS: a roll-back saves a micro-batch") {
  // m = 2: {1, 7} and {3, 9}. The 3 tokens, local on rank 0, leave room (3, 6); rolled back (5, 4), and 9 fits.
  const auto micro_batches = cut({1, 3, 7, 9}, 2, 6);
  REQUIRE(micro_batches.size() == 2);
  CHECK(micro_batches[0].local == std::vector<Sequences>{{0}, {}});
  CHECK(distributed_of(micro_batches[0]) == Sequences{2});
  CHECK(distributed_of(micro_batches[1]) == Sequences{1, 3});
}

TEST_CASE("GDS: rules that fail where a better cut exists") {
  // Two micro-batches {1, 9} and {3, 7} hold 10 tokens each. m = 2 puts 3 + 9 together, m = 3 puts 1 + 9 together.
  CHECK(cut({1, 3, 7, 9}, 2, 5).size() == 4);
}

TEST_CASE("GDS: no sequences, no micro-batches") {
  CHECK(cut({}, 2, 5).empty());
}

TEST_CASE("GDS: replicas by FLOPs, the costliest first") {
  const CostModel cost = half_billion_cost();
  // Attention makes 16000 tokens cost more than 8000 + 6000 + 2000 do: longest first gives {16000} and the rest.
  const ScheduleRequest request{{2000, 6000, 16000, 8000}, {2, 2, 2}, 20000};
  const Plan plan = make_plan("skrull-paper", request, cost);
  REQUIRE(plan.micro_batch_count() == 1);
  CHECK(sequences_of(plan.micro_batches[0][0]) == Sequences{2});
  CHECK(sequences_of(plan.micro_batches[1][0]) == Sequences{0, 1, 3});
  CHECK(plan.micro_batches[1][0].local == std::vector<Sequences>{{0, 3}, {1}});
}
