#include "skrull/schedule/plan.h"

#include <string>

#include "skrull/core/error.h"
#include "support/catch.h"

using namespace skrull;

namespace {

/// Two replicas of two context-parallel ranks; sequence 0 local on rank 1, sequence 1 in a ring, sequence 2 local.
Plan good_plan() {
  PlannedMicroBatch mixed{{{}, {0}}, {{1, {0, 1}}}};
  PlannedMicroBatch whole{{{2}, {}}, {}};
  PlannedMicroBatch empty{{{}, {}}, {}};
  return {"by hand", {2, 2, 4}, 10, {4, 11, 10}, {{mixed, empty}, {whole, empty}}};
}

std::string complaint(const Plan& plan) {
  try {
    validate_plan(plan);
  } catch (const RunFailure& error) {
    return error.what();
  }
  return "valid";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a plan with local and distributed sequences is valid") {
  CHECK(complaint(good_plan()) == "valid");
}

TEST_CASE("zigzag sizes count exactly against bucket_tokens") {
  // 11 tokens over 2 ranks: chunks 3 3 3 2 -> 5 and 6; rank 1 also holds the 4 tokens of sequence 0.
  Plan plan = good_plan();
  plan.lengths[2] = 5;
  plan.bucket_tokens = 9;
  CHECK(complaint(plan) == "plan: replica 0, micro-batch 0: rank 1 holds 10 tokens, more than bucket_tokens 9");
}

TEST_CASE("each rule of a plan is checked") {
  Plan plan = good_plan();
  plan.micro_batches[1][0].local[0].clear();
  CHECK(complaint(plan) == "plan: sequence 2 is computed 0 times, expected once");

  plan = good_plan();
  plan.micro_batches[1][1].local[1].push_back(0);
  CHECK(complaint(plan) == "plan: sequence 0 is computed 2 times, expected once");

  plan = good_plan();
  plan.micro_batches[1][0].local[0][0] = 3;
  CHECK(contains(complaint(plan), "sequence 3 of a global batch of 3"));
  plan.micro_batches[1][0].local[0][0] = -1;
  CHECK(contains(complaint(plan), "sequence -1 of a global batch of 3"));

  plan = good_plan();
  plan.micro_batches[1].pop_back();
  CHECK(contains(complaint(plan), "replica 1 has 1 micro-batches and replica 0 has 2"));

  plan = good_plan();
  std::swap(plan.micro_batches[1][0], plan.micro_batches[1][1]);
  CHECK(contains(complaint(plan), "replica 1, micro-batch 1: comes after an empty one"));

  plan = good_plan();
  plan.micro_batches.pop_back();
  CHECK(contains(complaint(plan), "micro-batches of 1 replicas, expected 2"));

  plan = good_plan();
  plan.micro_batches[0][1].local.pop_back();
  CHECK(contains(complaint(plan), "local sequences of 1 context-parallel ranks, expected 2"));

  plan = good_plan();
  plan.lengths[0] = 0;
  CHECK(contains(complaint(plan), "sequence 0 has 0 tokens"));
}

TEST_CASE("rings are ascending, of at least two ranks, inside the group") {
  for (const std::vector<int>& ring : {std::vector<int>{0}, {1, 0}, {0, 0}, {0, 2}, {-1, 1}}) {
    Plan plan = good_plan();
    plan.micro_batches[0][0].distributed[0].ranks = ring;
    CHECK(contains(complaint(plan), "replica 0, micro-batch 0: sequence 1"));
  }
}
