#include "dacp.h"

#include <numeric>
#include <string>
#include <vector>

#include "printed_dacp.h"
#include "schedule_fixture.h"
#include "skrull/core/error.h"
#include "skrull/core/rng.h"
#include "support/catch.h"

using namespace skrull;
using namespace skrull::test;

namespace {

/// A micro-batch worked by hand. `flops` empty: as many as tokens.
struct WorkedExample {
  std::string what;
  std::int64_t bucket_tokens = 0;
  Sequences lengths;  ///< ascending
  std::vector<double> flops;
  LocalRule rule = LocalRule::least_loaded;
  bool fails = false;
  int ranks = 0;
  std::vector<Sequences> local;
  Sequences distributed;
};

constexpr LocalRule least_loaded = LocalRule::least_loaded;
constexpr LocalRule cyclic = LocalRule::cyclic;

// "(7, 10)" is the room of ranks 0 and 1. Ties go to the lower rank.
const std::vector<WorkedExample> examples = {
    {"each sequence to the least loaded rank", 10, {1, 2, 3, 4}, {}, least_loaded, false, 2, {{0, 2}, {1, 3}}, {}},
    {"load counts FLOPs, not tokens", 10, {1, 2, 3}, {10, 1, 1}, least_loaded, false, 2, {{0}, {1, 2}}, {}},
    {"in turn, whatever the load", 10, {1, 2, 3}, {10, 1, 1}, cyclic, false, 2, {{0, 2}, {1}}, {}},
    // (4, 3), loads (10, 1): 4 tokens do not fit on the less loaded rank 1.
    {"the roomiest rank when the least loaded is full",
     6,
     {2, 3, 4},
     {10, 1, 1},
     least_loaded,
     false,
     2,
     {{0, 2}, {1}},
     {}},
    // (4, 6): 8 tokens are 4 and 4.
    {"longer than the bucket: distributed beside a local one", 6, {2, 8}, {}, least_loaded, false, 2, {{0}, {}}, {1}},
    // (5, 4): 9 tokens are 5 and 4, where half of 9 on either rank would not fit.
    {"shards count exactly", 6, {1, 2, 9}, {}, least_loaded, false, 2, {{0}, {1}}, {2}},
    // (4, 6): 9 tokens are 5 and 4; 2 tokens become 1 and 1, (5, 5).
    {"one roll-back", 6, {2, 9}, {}, least_loaded, false, 2, {{}, {}}, {0, 1}},
    // 3 0, 4 1, 5 0: (2, 6); 8 tokens are 4 and 4; 3 tokens become 1 and 2, (4, 4).
    {"a roll-back that fills both ranks to the last token",
     10,
     {3, 4, 5, 8},
     {},
     least_loaded,
     false,
     2,
     {{2}, {1}},
     {0, 3}},
    // (4, 4); 10 tokens are 5 and 5. Roll-backs of 2, 2, 4, 4 tokens in turn: (5, 3) (4, 4) (6, 2) (4, 4), none left.
    {"roll-backs until none is left: failure", 10, {2, 2, 4, 4, 10}, {}, least_loaded, true, 2, {}, {}},
    // (5, 1, 0): 6 tokens are 2 each. Rank 2's 6 tokens would become 2 each, but rank 1 has room for 1.
    {"a roll-back that would overflow another rank: failure", 6, {1, 5, 6, 6}, {}, least_loaded, true, 3, {}, {}},
    // (6, 6, 7): 19 tokens are 7, 6, 6. A distributed single token lies on rank 0 again.
    {"ring position 0 gets the rounding: failure at exactly C N tokens",
     7,
     {1, 1, 19},
     {},
     least_loaded,
     true,
     3,
     {},
     {}},
    {"the rounding fits where rank 0 is free", 7, {19}, {}, least_loaded, false, 3, {{}, {}, {}}, {0}},
    {"one rank holds everything", 5, {2, 3}, {}, least_loaded, false, 1, {{0, 1}}, {}},
    {"one rank cannot distribute: failure", 5, {2, 4}, {}, least_loaded, true, 1, {}, {}},
};

std::vector<double> loads_of(const WorkedExample& example) {
  if (!example.flops.empty()) return example.flops;
  return {example.lengths.begin(), example.lengths.end()};
}

Sequences all_of(const Sequences& lengths) {
  Sequences indices(lengths.size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

/// "valid", or the rule that the micro-batch breaks.
std::string complaint(const PlannedMicroBatch& planned, const Sequences& lengths, int ranks, std::int64_t bucket) {
  try {
    validate_plan({"by hand", {1, ranks, ranks}, bucket, lengths, {{planned}}});
  } catch (const RunFailure& error) {
    return error.what();
  }
  return "valid";
}

}  // namespace

TEST_CASE("DACP: worked examples") {
  for (const WorkedExample& example : examples) {
    INFO(example.what);
    const auto flops = loads_of(example);
    const auto planned =
        dacp({example.lengths, flops, example.ranks, example.bucket_tokens, example.rule}, all_of(example.lengths));
    REQUIRE(planned.has_value() != example.fails);
    if (example.fails) continue;
    CHECK(planned->local == example.local);
    CHECK(distributed_of(*planned) == example.distributed);
    CHECK(complaint(*planned, example.lengths, example.ranks, example.bucket_tokens) == "valid");
  }
}

TEST_CASE("DACP as printed overflows other ranks when it rolls back") {
  // As above up to (2, 6). Printed: 3 tokens leave rank 0 (3.5, 6), then 5 tokens (6, 6), and 8 tokens seem to fit.
  // In truth rank 1 holds 4 local tokens and 2 + 2 + 4 of the shards.
  const Sequences lengths = {3, 4, 5, 8};
  const std::vector<double> flops = {3, 4, 5, 8};
  const auto printed = printed_dacp(lengths, flops, 2, 10, all_of(lengths));
  REQUIRE(printed.has_value());
  CHECK(distributed_of(*printed) == Sequences{0, 2, 3});
  CHECK(complaint(*printed, lengths, 2, 10) ==
        "plan: replica 0, micro-batch 0: rank 1 holds 12 tokens, more than bucket_tokens 10");
}

TEST_CASE("DACP never breaks memory, and agrees with the print where nothing rolls back") {
  Rng rng(3, "dacp");
  int overflows_of_the_print = 0;
  int equal = 0;
  int failures = 0;
  for (int round = 0; round < 3000; ++round) {
    const int ranks = 2 + static_cast<int>(rng.below(7));
    const std::int64_t bucket = 50 + static_cast<std::int64_t>(rng.below(500));
    Sequences lengths(1 + rng.below(20));
    for (auto& length : lengths) length = 1 + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(bucket)));
    std::sort(lengths.begin(), lengths.end());
    std::vector<double> flops;
    for (const auto length : lengths) flops.push_back(static_cast<double>(length * length));
    const auto planned = dacp({lengths, flops, ranks, bucket}, all_of(lengths));
    const auto printed = printed_dacp(lengths, flops, ranks, bucket, all_of(lengths));
    if (planned) {
      CHECK(complaint(*planned, lengths, ranks, bucket) == "valid");
    } else {
      ++failures;
    }
    if (!printed) continue;
    if (complaint(*printed, lengths, ranks, bucket) != "valid") ++overflows_of_the_print;
    if (printed->distributed.empty()) {
      REQUIRE(planned.has_value());
      CHECK(planned->local == printed->local);
      CHECK(planned->distributed.empty());
      ++equal;
    }
  }
  CHECK(overflows_of_the_print > 50);
  CHECK(equal > 500);
  CHECK(failures > 50);
}
