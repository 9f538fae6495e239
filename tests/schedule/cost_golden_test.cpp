// The cost model and the lower bound against numbers that an independent program computed
// (scripts/make_schedule_goldens.py).

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "skrull/core/json.h"
#include "skrull/schedule/bound.h"
#include "skrull/schedule/cost_model.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;

namespace {

const Json& goldens() {
  static const Json file = read_json_file(test::test_data("schedule/plans.json"));
  return file;
}

/// Equal up to the rounding of sums in another order.
bool same(double value, double expected) {
  return std::abs(value - expected) <= 1e-9 * std::abs(expected);
}

ModelShape model_of(const Json& json) {
  return {json.at("hidden_size"),         json.at("num_layers"), json.at("num_attention_heads"),
          json.at("num_key_value_heads"), json.at("head_dim"),   json.at("intermediate_size"),
          json.at("vocab_size")};
}

Topology topology_of(const Json& json) {
  return {json.at("data_parallel"), json.at("context_parallel"), json.at("ranks_per_node")};
}

Recompute recompute_of(const Json& golden) {
  return golden.at("recompute") == "full" ? Recompute::full : Recompute::selective;
}

HardwareProfile profile_of(const Json& golden) {
  for (const Json& profile : goldens().at("profiles")) {
    if (profile.at("name") == golden.at("profile")) return parse_hardware_profile(profile.dump(), "golden");
  }
  throw std::runtime_error("no such profile in the golden file");
}

Plan plan_of(const Json& json) {
  Plan plan;
  plan.policy = json.at("policy");
  plan.topology = topology_of(json.at("topology"));
  plan.bucket_tokens = json.at("bucket_tokens");
  plan.lengths = json.at("sequences").get<std::vector<std::int64_t>>();
  std::size_t most = 0;
  for (const Json& replica : json.at("micro_batches")) {
    auto& micro_batches = plan.micro_batches.emplace_back();
    for (const Json& micro_batch : replica) {
      PlannedMicroBatch& planned = micro_batches.emplace_back();
      planned.local = micro_batch.at("local").get<std::vector<std::vector<std::int64_t>>>();
      for (const Json& entry : micro_batch.at("distributed")) {
        planned.distributed.push_back({entry.at("sequence"), entry.at("ranks").get<std::vector<int>>()});
      }
    }
    most = std::max(most, micro_batches.size());
  }
  PlannedMicroBatch empty;
  empty.local.resize(static_cast<std::size_t>(plan.topology.context_parallel));
  for (auto& replica : plan.micro_batches) replica.resize(most, empty);
  return plan;
}

void check_bound(const ScheduleRequest& request, const CostModel& cost, const Json& expected) {
  const LowerBound bound = lower_bound(request, cost);
  CHECK(same(bound.seconds, expected.at("value")));
  CHECK(name_of(bound.reason) == expected.at("which").get<std::string>());
  CHECK(same(bound.largest_sequence, expected.at("largest_sequence")));
  CHECK(same(bound.memory, expected.at("memory")));
}

/// Sums a rank's loads over its micro-batches.
template <class Value>
double over_micro_batches(const PlanCost& result, std::size_t replica, std::size_t rank, Value value) {
  double sum = 0.0;
  for (const auto& ranks : result.rank_loads[replica]) sum += value(ranks[rank]);
  return sum;
}

void check_ranks(const Plan& plan, const PlanCost& result, const CostModel& cost, const Json& expected) {
  for (std::size_t replica = 0; replica < plan.micro_batches.size(); ++replica) {
    // The checker leaves out a replica's empty micro-batches at the end; here their ranks have fixed costs to show.
    std::size_t used = 0;
    for (const double seconds : result.micro_batch_seconds[replica]) used += seconds > 0.0 ? 1 : 0;
    const double idle =
        static_cast<double>(result.micro_batch_seconds[replica].size() - used) * cost.micro_batch_overhead();
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(plan.topology.context_parallel); ++rank) {
      const auto total = [&](auto value) { return over_micro_batches(result, replica, rank, value); };
      CHECK(same(total([](const RankLoad& load) { return load.time.total; }) - idle,
                 expected.at("rank_seconds")[replica][rank]));
      CHECK(same(total([](const RankLoad& load) { return load.hop_bytes; }),
                 expected.at("rank_comm_bytes")[replica][rank]));
      CHECK(same(total([&](const RankLoad& load) { return cost.flops(load.tokens, load.causal_area); }),
                 expected.at("rank_flops")[replica][rank]));
    }
  }
}

}  // namespace

TEST_CASE("plans cost what the independent checker says") {
  for (const Json& golden : goldens().at("plans")) {
    INFO(golden.at("name").get<std::string>());
    const Json& expected = golden.at("expected");
    const CostModel cost(model_of(golden.at("plan").at("model")), profile_of(golden), recompute_of(golden));
    const Plan plan = plan_of(golden.at("plan"));
    REQUIRE_NOTHROW(validate_plan(plan));
    const PlanCost result = evaluate_plan(plan, cost);
    CHECK(same(result.schedule_seconds, expected.at("schedule_seconds")));
    CHECK(same(result.step_seconds, expected.at("step_seconds")));
    CHECK(same(schedule_seconds(plan, cost), expected.at("schedule_seconds")));
    CHECK(result.distributed_sequences == expected.at("distributed_sequences").get<std::int64_t>());
    CHECK(result.peak_tokens == expected.at("peak_tokens_per_rank").get<std::int64_t>());
    for (std::size_t replica = 0; replica < plan.micro_batches.size(); ++replica) {
      CHECK(same(result.replica_seconds[replica], expected.at("dp_seconds")[replica]));
    }
    check_ranks(plan, result, cost, expected);
    check_bound({plan.lengths, plan.topology, plan.bucket_tokens}, cost, expected.at("bound"));
  }
}

TEST_CASE("the paper's FLOPs: an MLP of 8h/3, no causal halving") {
  const Json& golden = goldens().at("plans").at(1);
  const ModelShape model = model_of(golden.at("plan").at("model"));
  const CostModel cost(model, profile_of(golden), Recompute::selective, FlopsModel::paper);
  const auto h = static_cast<double>(model.hidden_size);
  const auto h_kv = static_cast<double>(model.num_key_value_heads * model.head_dim);
  const double length = 5000.0;
  const double layer = 3.0 * (20.0 * h * h + 4.0 * h * h_kv) * length + 3.5 * 4.0 * h * length * length;
  const double head = 3.0 * 2.0 * h * static_cast<double>(model.vocab_size) * length;
  const double expected = static_cast<double>(model.num_layers) * layer + head;
  CHECK(same(cost.flops(5000, causal_area(5000)), expected));
  double shards = 0.0;
  for (int i = 0; i < 3; ++i) shards += cost.flops(zigzag_shard_length(5000, 3, i), zigzag_causal_area(5000, 3, i));
  CHECK(same(shards, expected));
}

TEST_CASE("lower bounds are the independent checker's, whatever gives them") {
  std::map<std::string, int> reasons;
  for (const Json& golden : goldens().at("bounds")) {
    INFO(golden.at("name").get<std::string>());
    const CostModel cost(model_of(golden.at("model")), profile_of(golden), recompute_of(golden));
    const ScheduleRequest request{golden.at("sequences").get<std::vector<std::int64_t>>(),
                                  topology_of(golden.at("topology")), golden.at("bucket_tokens")};
    check_bound(request, cost, golden.at("bound"));
    ++reasons[golden.at("bound").at("which")];
  }
  CHECK(reasons.size() == 3);
}

TEST_CASE("zigzag shards and their causal areas are the independent checker's") {
  for (const Json& golden : goldens().at("zigzag")) {
    const std::int64_t length = golden.at("length");
    const int ring = golden.at("ring");
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(ring));
    zigzag_shard_lengths(length, tokens);
    CHECK(tokens == golden.at("tokens").get<std::vector<std::int64_t>>());
    std::int64_t sum = 0;
    for (int position = 0; position < ring; ++position) {
      const auto at = static_cast<std::size_t>(position);
      CHECK(zigzag_shard_length(length, ring, position) == tokens[at]);
      CHECK(zigzag_causal_area(length, ring, position) == golden.at("causal_area")[at].get<std::int64_t>());
      sum += zigzag_causal_area(length, ring, position);
    }
    CHECK(sum == causal_area(length));
  }
}
