#include "skrull/schedule/simulator.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "simulator_cases.h"
#include "skrull/core/error.h"
#include "skrull/core/rng.h"
#include "skrull/schedule/bound.h"
#include "skrull/schedule/scheduler.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;
using namespace skrull::test;

namespace {

double relative(double value, double reference) {
  return value / reference - 1.0;
}

/// A valid plan that no policy would make: any sequence local or on any ring, in any micro-batch.
Plan random_plan(Rng& rng, bool rings) {
  Plan plan;
  plan.policy = "random";
  plan.topology.data_parallel = 1 + static_cast<int>(rng.below(3));
  plan.topology.context_parallel = 1 + static_cast<int>(rng.below(8));
  plan.topology.ranks_per_node = 1 + static_cast<int>(rng.below(8));
  const auto ranks = static_cast<std::size_t>(plan.topology.context_parallel);
  const std::size_t micro_batches = 1 + rng.below(3);
  PlannedMicroBatch empty;
  empty.local.resize(ranks);
  plan.micro_batches.assign(static_cast<std::size_t>(plan.topology.data_parallel), {micro_batches, empty});
  const std::size_t sequences = 1 + rng.below(40);
  for (std::size_t sequence = 0; sequence < sequences; ++sequence) {
    plan.lengths.push_back(1 + static_cast<std::int64_t>(rng.below(rng.below(4) == 0 ? 40000 : 2000)));
    auto& replica = plan.micro_batches[rng.below(plan.micro_batches.size())];
    PlannedMicroBatch& micro_batch = replica[rng.below(micro_batches)];
    std::vector<int> ring;
    for (int rank = 0; rank < plan.topology.context_parallel; ++rank) {
      if (rng.below(2) == 0) ring.push_back(rank);
    }
    const auto index = static_cast<std::int64_t>(sequence);
    if (rings && ring.size() >= 2 && rng.below(2) == 0) {
      micro_batch.distributed.push_back({index, ring});
    } else {
      micro_batch.local[rng.below(ranks)].push_back(index);
    }
  }
  const auto is_used = [](const PlannedMicroBatch& micro_batch) {
    return !micro_batch.distributed.empty() || std::any_of(micro_batch.local.begin(), micro_batch.local.end(),
                                                           [](const auto& local) { return !local.empty(); });
  };
  for (auto& replica : plan.micro_batches) std::stable_partition(replica.begin(), replica.end(), is_used);
  plan.bucket_tokens = 1;
  const PlanCost cost = evaluate_plan(plan, qwen_cost());
  plan.bucket_tokens = cost.peak_tokens;
  validate_plan(plan);
  return plan;
}

/// Every kernel and hop where it may be: nothing overlaps on a stream, nothing sticks out of its micro-batch, and the
/// sums by activity are those of the spans.
void check_spans(const Simulation& simulation) {
  std::map<std::pair<int, int>, std::vector<Span>> streams[2];
  std::map<std::array<int, 4>, double> sums;
  for (const Span& span : simulation.spans) {
    REQUIRE(span.end > span.begin);
    streams[span.activity == Activity::hop ? 1 : 0][{span.replica, span.rank}].push_back(span);
    sums[{span.replica, span.micro_batch, span.rank, static_cast<int>(span.activity)}] += span.end - span.begin;
  }
  const double slack = 1e-9 * simulation.schedule_seconds;
  for (auto& kind : streams) {
    for (auto& [rank, spans] : kind) {
      std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
      for (std::size_t i = 0; i + 1 < spans.size(); ++i) REQUIRE(spans[i].end <= spans[i + 1].begin + slack);
    }
  }
  for (std::size_t replica = 0; replica < simulation.micro_batches.size(); ++replica) {
    for (std::size_t index = 0; index < simulation.micro_batches[replica].size(); ++index) {
      const SimulatedMicroBatch& micro_batch = simulation.micro_batches[replica][index];
      for (std::size_t rank = 0; rank < micro_batch.ranks.size(); ++rank) {
        const SimulatedRank& simulated = micro_batch.ranks[rank];
        CHECK(simulated.begin >= micro_batch.begin);
        CHECK(simulated.end <= micro_batch.end);
        CHECK(simulated.waiting() >= -slack);
        for (const Activity activity : all_activities) {
          const std::array<int, 4> key{static_cast<int>(replica), static_cast<int>(index), static_cast<int>(rank),
                                       static_cast<int>(activity)};
          CHECK(sums[key] == Approx(simulated.of(activity)).margin(slack));
        }
      }
    }
  }
  for (const Span& span : simulation.spans) {
    const auto& micro_batch =
        simulation.micro_batches[static_cast<std::size_t>(span.replica)][static_cast<std::size_t>(span.micro_batch)];
    const SimulatedRank& rank = micro_batch.ranks[static_cast<std::size_t>(span.rank)];
    CHECK(span.begin >= rank.begin - slack);
    CHECK(span.end <= rank.end + slack);
  }
}

std::vector<Span> spans_of(const Simulation& simulation, int rank) {
  std::vector<Span> spans;
  for (const Span& span : simulation.spans) {
    if (span.rank == rank) spans.push_back(span);
  }
  return spans;
}

/// "activity pass step begin-end" of the spans of a rank, in the order of the simulation.
std::string listing(const Simulation& simulation, int rank) {
  std::ostringstream text;
  for (const Span& span : spans_of(simulation, rank)) {
    text << name_of(span.activity) << ' ' << name_of(span.pass);
    if (span.step >= 0) text << ' ' << span.step;
    text << ' ' << span.begin << '-' << span.end << '\n';
  }
  return text.str();
}

Simulation recorded(const Plan& plan, const CostModel& cost, SimulationOptions options = {}) {
  options.record_spans = true;
  return simulate_step(plan, cost, options);
}

}  // namespace

TEST_CASE("one ring of two ranks by hand: hops behind kernels") {
  // 4 tokens: 2 on each rank, 5 query-key pairs each. Forward steps 2.5 + 0.5, backward 6.25 + 0.75. A hop of K and V
  // has 8 bytes: 2 s + 1 s; with dK and dV 24 bytes: 7 s; dK and dV alone 16 bytes: 5 s.
  const Plan plan{"by hand", {1, 2, 2}, 2, {4}, {{{{{}, {}}, {{0, {0, 1}}}}}}};
  const CostModel cost = unit_cost(1);
  const Simulation simulation = recorded(plan, cost);
  const std::string expected =
      "fixed cost forward 0-10\n"
      "linear forward 10-12\n"
      "ring attention forward 0 12-15\n"
      "hop forward 1 12-15\n"
      "ring attention forward 1 15-18\n"
      "head head 18-24\n"
      "fixed cost backward 24-44\n"
      "linear backward 44-48\n"
      "ring attention backward 0 48-55\n"
      "hop backward 1 48-55\n"
      "ring attention backward 1 55-62\n"
      "hop backward 2 62-67\n";
  CHECK(listing(simulation, 0) == expected);
  CHECK(listing(simulation, 1) == expected);
  CHECK(simulation.schedule_seconds == 67.0);
  CHECK(evaluate_plan(plan, cost).schedule_seconds == 67.0);
  CHECK(simulation.step_seconds == 67.0);
  CHECK(simulation.micro_batches[0][0].ranks[0].waiting() == 5.0);
  CHECK(simulation.busy_share() == Approx(62.0 / 67.0));
}

TEST_CASE("one ring of two ranks by hand: local attention fills the waits") {
  // As above with links of 10 s latency (hops 12, 16, 14 s) and a sequence of 3 tokens, 6 pairs, whole on rank 0.
  // Rank 0, forward: local 6 + 1, own shard 3, ready at 25; the hop, started when rank 0 has its K and V at 15, arrives
  // at 27. Rank 1 has K and V at 12 and waits for rank 0.
  // Backward: own shard 75-82; the hop 75-91; local 15 + 2 fills 82-91 and, after the last step, 98-106 of the 14 s
  // home.
  const Plan plan{"by hand", {1, 2, 2}, 5, {4, 3}, {{{{{1}, {}}, {{0, {0, 1}}}}}}};
  const CostModel cost = unit_cost(1, 10.0);
  const Simulation simulation = recorded(plan, cost);
  CHECK(listing(simulation, 0) ==
        "fixed cost forward 0-10\n"
        "linear forward 10-15\n"
        "local attention forward 15-22\n"
        "ring attention forward 0 22-25\n"
        "hop forward 1 15-27\n"
        "ring attention forward 1 27-30\n"
        "head head 30-45\n"
        "fixed cost backward 45-65\n"
        "linear backward 65-75\n"
        "ring attention backward 0 75-82\n"
        "hop backward 1 75-91\n"
        "local attention backward 82-91\n"
        "ring attention backward 1 91-98\n"
        "hop backward 2 98-112\n"
        "local attention backward 98-106\n");
  CHECK(listing(simulation, 1) ==
        "fixed cost forward 0-10\n"
        "linear forward 10-12\n"
        "ring attention forward 0 12-15\n"
        "hop forward 1 15-27\n"
        "ring attention forward 1 27-30\n"
        "head head 30-36\n"
        "fixed cost backward 36-56\n"
        "linear backward 56-60\n"
        "ring attention backward 0 60-67\n"
        "hop backward 1 75-91\n"
        "ring attention backward 1 91-98\n"
        "hop backward 2 98-112\n");
  CHECK(simulation.schedule_seconds == 112.0);
  CHECK(evaluate_plan(plan, cost).schedule_seconds == 112.0);
}

TEST_CASE("overlapping rings by hand: a ring waits for its ranks to leave another") {
  // Ring {0,1} has 4 tokens, ring {1,2} has 4: rank 1 serves both, one after the other. Latency 10: hops of 12 s.
  // Rank 1 begins its attention at 14, as its matrix products take 4; rank 2 is ready at 12 and its hop starts only
  // when rank 1 has left the first ring, at 26.
  const Plan plan{"by hand", {1, 3, 3}, 4, {4, 4}, {{{{{}, {}, {}}, {{0, {0, 1}}, {1, {1, 2}}}}}}};
  const CostModel cost = unit_cost(1, 10.0);
  const Simulation simulation = recorded(plan, cost);
  std::vector<Span> hops;
  for (const Span& span : spans_of(simulation, 2)) {
    if (span.activity == Activity::hop) hops.push_back(span);
  }
  REQUIRE(hops.size() == 3);
  CHECK(hops[0].begin == 26.0);
  CHECK(hops[0].end == 38.0);
  CHECK(hops[0].ring == 1);
  CHECK(simulation.micro_batches[0][0].rings[1].ranks == std::vector<int>{1, 2});
  // Rank 1 forward: both own shards 14-20, step of the first ring 26-29, of the second 38-41; head to 53; products to
  // 81. Backward: own shard 81-88, meanwhile the second ring's 88-95; hop 81-97, step 97-104, home 104-118, then the
  // second ring's hop 118-134, step to 141, home at 155.
  CHECK(simulation.schedule_seconds == 155.0);
  const std::vector<Span> busiest = spans_of(simulation, 1);
  CHECK(std::count_if(busiest.begin(), busiest.end(), [](const Span& span) {
          return span.pass == Pass::backward && span.ring == 1 && span.step == 0 && span.begin == 88.0;
        }) == 1);
  // The closed form adds up what each ring leaves exposed: forward 2 (12 - 3), backward 2 (16 - 7 + 14).
  CHECK(evaluate_plan(plan, cost).schedule_seconds == 14.0 + 18.0 + 12.0 + 12.0 + 28.0 + 46.0 + 28.0);
}

TEST_CASE("one ring of three ranks by hand: dK and dV trail the kernels") {
  // 6 tokens, 7 pairs on each rank: backward steps of 17.5 / 3 + 0.75 s, hops of 6 s without latency.
  const Plan plan{"by hand", {1, 3, 3}, 2, {6}, {{{{{}, {}, {}}, {{0, {0, 1, 2}}}}}}};
  const Simulation simulation = recorded(plan, unit_cost(1, 0.0));
  const double step = 17.5 / 3.0 + 0.75;
  std::vector<double> kernels;
  std::vector<double> hops;
  for (const Span& span : spans_of(simulation, 1)) {
    if (span.pass != Pass::backward || span.ring < 0) continue;
    (span.activity == Activity::hop ? hops : kernels).push_back(span.begin);
  }
  REQUIRE(kernels.size() == 3);
  REQUIRE(hops.size() == 3);
  CHECK(hops[0] == Approx(kernels[0]));
  CHECK(kernels[1] == Approx(kernels[0] + step));
  CHECK(hops[1] == Approx(kernels[0] + step));
  CHECK(kernels[2] == Approx(kernels[0] + 2 * step));
  CHECK(hops[2] == Approx(kernels[0] + 3 * step));
}

TEST_CASE("full recompute plays the forward of a layer again before its backward") {
  const Plan plan{"by hand", {1, 2, 2}, 2, {4}, {{{{{}, {}}, {{0, {0, 1}}}}}}};
  const CostModel cost = unit_cost(2, 1.0, Recompute::full);
  const Simulation simulation = recorded(plan, cost);
  // Two layers forward (18 each), head 6, then for each 18 + 43.
  CHECK(simulation.schedule_seconds == 2 * 18.0 + 6.0 + 2 * (18.0 + 43.0));
  CHECK(evaluate_plan(plan, cost).schedule_seconds == simulation.schedule_seconds);
  std::vector<int> layers;
  for (const Span& span : spans_of(simulation, 0)) {
    if (span.activity == Activity::linear) layers.push_back(span.layer);
  }
  CHECK(layers == std::vector<int>{0, 1, 1, 1, 0, 0});
}

TEST_CASE("waiting after a micro-batch is optional") {
  // Rank 0 has 5 tokens then 1, rank 1 has 1 then 5. Alone a rank takes 30 + (1 + 2 + 3) t + 3.5 t (t + 1) / 2 + 3.
  const Plan plan{"by hand", {1, 2, 2}, 5, {5, 1, 1, 5}, {{{{{0}, {1}}, {}}, {{{2}, {3}}, {}}}}};
  const CostModel cost = unit_cost(1);
  const double five = 30.0 + 30.0 + 52.5 + 3.0;
  const double one = 30.0 + 6.0 + 3.5 + 3.0;
  const Simulation waits = simulate_step(plan, cost);
  CHECK(waits.schedule_seconds == 2 * five);
  CHECK(waits.micro_batches[0][0].ranks[1].end == one);
  CHECK(waits.micro_batches[0][1].ranks[1].begin == five);
  SimulationOptions options;
  options.wait_after_micro_batch = false;
  const Simulation free = simulate_step(plan, cost, options);
  CHECK(free.schedule_seconds == five + one);
  CHECK(free.micro_batches[0][1].ranks[1].begin == one);
}

TEST_CASE("without rings the simulation is the closed form") {
  Rng rng(1, "simulator");
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    const CostModel cost = qwen_cost(recompute);
    for (int round = 0; round < 100; ++round) {
      const Plan plan = random_plan(rng, false);
      const Simulation simulation = simulate_step(plan, cost);
      const PlanCost closed = evaluate_plan(plan, cost);
      REQUIRE(simulation.step_seconds == Approx(closed.step_seconds).epsilon(1e-10));
      REQUIRE(simulation.gradient_sync_seconds == cost.gradient_sync_seconds());
      for (std::size_t replica = 0; replica < plan.micro_batches.size(); ++replica) {
        for (std::size_t index = 0; index < plan.micro_batches[replica].size(); ++index) {
          const SimulatedMicroBatch& micro_batch = simulation.micro_batches[replica][index];
          REQUIRE(micro_batch.end - micro_batch.begin ==
                  Approx(closed.micro_batch_seconds[replica][index]).margin(1e-12));
          if (micro_batch.empty) continue;
          for (std::size_t rank = 0; rank < micro_batch.ranks.size(); ++rank) {
            const RankTime& time = closed.rank_loads[replica][index][rank].time;
            REQUIRE(micro_batch.ranks[rank].busy() == Approx(time.total).epsilon(1e-10));
            REQUIRE(micro_batch.ranks[rank].of(Activity::local_attention) == Approx(time.local_attention));
            REQUIRE(micro_batch.ranks[rank].of(Activity::fixed) == Approx(time.fixed));
          }
        }
      }
    }
  }
}

TEST_CASE("rings of even shards without a common rank: the simulation is the closed form") {
  // Two rings whose ranks share evenly, each with local sequences on one of its ranks, which is then the slowest both
  // ways; from hops that take longer than kernels to hops that vanish.
  Rng rng(2, "simulator");
  for (int round = 0; round < 200; ++round) {
    const std::int64_t size = 2 + static_cast<std::int64_t>(rng.below(7));
    Plan plan{"even", {1, static_cast<int>(size) + 2, 16}, 1, {}, {{{}}}};
    PlannedMicroBatch& micro_batch = plan.micro_batches[0][0];
    micro_batch.local.resize(static_cast<std::size_t>(size) + 2);
    std::vector<int> ring(static_cast<std::size_t>(size));
    std::iota(ring.begin(), ring.end(), 0);
    const std::vector<int> pair{static_cast<int>(size), static_cast<int>(size) + 1};
    const auto add = [&](std::int64_t length) {
      plan.lengths.push_back(length);
      return static_cast<std::int64_t>(plan.lengths.size()) - 1;
    };
    for (std::uint64_t n = 1 + rng.below(3); n > 0; --n) {
      micro_batch.distributed.push_back({add(2 * size * static_cast<std::int64_t>(1 + rng.below(3000))), ring});
    }
    micro_batch.distributed.push_back({add(4 * static_cast<std::int64_t>(1 + rng.below(2000))), pair});
    for (std::uint64_t n = rng.below(4); n > 0; --n) {
      micro_batch.local[1].push_back(add(1 + static_cast<std::int64_t>(rng.below(4000))));
    }
    HardwareProfile profile = h100_profile();
    const double slower = std::pow(10.0, 4.0 * rng.uniform() - 1.0);
    profile.intra_node.bytes_per_s /= slower;
    profile.intra_node.latency_s *= slower;
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      const CostModel cost(qwen_half_billion(), profile, recompute);
      const double closed = evaluate_plan(plan, cost).schedule_seconds;
      REQUIRE(simulate_step(plan, cost).schedule_seconds == Approx(closed).epsilon(1e-9));
    }
  }
}

TEST_CASE("every sequence over all ranks: within 0.1% of the closed form") {
  Rng rng(3, "simulator");
  const CostModel cost = qwen_cost();
  for (int round = 0; round < 60; ++round) {
    ScheduleRequest request;
    request.topology = {1 + static_cast<int>(rng.below(4)), 1 + static_cast<int>(rng.below(16)), 8};
    request.bucket_tokens = 26000;
    request.lengths.resize(1 + rng.below(200));
    for (auto& length : request.lengths) {
      length = 1 + static_cast<std::int64_t>(rng.below(rng.below(5) == 0 ? 26000 : 1000));
    }
    const Plan plan = make_plan("packed", request, cost);
    const double closed = evaluate_plan(plan, cost).schedule_seconds;
    REQUIRE(std::abs(relative(simulate_step(plan, cost).schedule_seconds, closed)) < 0.001);
  }
}

TEST_CASE("every policy on lengths with a long tail: the closed form holds on average, the bound always") {
  const CostModel cost = qwen_cost();
  for (const std::string& policy : policy_names()) {
    Rng rng(6, "simulator");
    double sum = 0.0;
    constexpr int rounds = 10;
    for (int round = 0; round < rounds; ++round) {
      ScheduleRequest request{{}, {2, 8, 8}, 26000};
      request.lengths.resize(100);
      for (auto& length : request.lengths) {
        length = static_cast<std::int64_t>(std::min(150000.0, 400.0 / std::pow(1.0 - rng.uniform(), 1.1)));
      }
      const Plan plan = make_plan(policy, request, cost);
      const double simulated = simulate_step(plan, cost).schedule_seconds;
      const double difference = relative(simulated, evaluate_plan(plan, cost).schedule_seconds);
      INFO(policy << " round " << round << ": " << 100.0 * difference << "%");
      CHECK(difference > -0.01);
      CHECK(difference < 0.05);
      CHECK(simulated >= lower_bound(request, cost).seconds * (1.0 - 1e-12));
      sum += difference;
    }
    INFO(policy << ": mean " << 100.0 * sum / rounds << "%");
    CHECK(std::abs(sum / rounds) < 0.01);
  }
}

TEST_CASE("random plans: never below the bound, spans fit, time for every kernel, same result again") {
  Rng rng(4, "simulator");
  double least = 0.0;
  double most = 0.0;
  for (int round = 0; round < 400; ++round) {
    const CostModel cost = qwen_cost(round % 4 == 0 ? Recompute::full : Recompute::selective);
    const Plan plan = random_plan(rng, true);
    const double bound = lower_bound({plan.lengths, plan.topology, plan.bucket_tokens}, cost).seconds;
    const PlanCost closed = evaluate_plan(plan, cost);
    for (int stage = 0; stage <= 3; ++stage) {
      for (const bool wait : {true, false}) {
        SimulationOptions options{stage, wait, round % 10 == 0};
        const Simulation simulation = simulate_step(plan, cost, options);
        REQUIRE(simulation.schedule_seconds >= bound * (1.0 - 1e-12));
        REQUIRE(simulate_step(plan, cost, options).schedule_seconds == simulation.schedule_seconds);
        if (options.record_spans) check_spans(simulation);
        for (std::size_t replica = 0; replica < plan.micro_batches.size(); ++replica) {
          for (std::size_t index = 0; index < plan.micro_batches[replica].size(); ++index) {
            const SimulatedMicroBatch& micro_batch = simulation.micro_batches[replica][index];
            if (micro_batch.empty) continue;
            for (std::size_t rank = 0; rank < micro_batch.ranks.size(); ++rank) {
              const RankTime& time = closed.rank_loads[replica][index][rank].time;
              const double kernels = time.linear + time.fixed + time.local_attention + time.ring_attention;
              REQUIRE(micro_batch.ranks[rank].busy() == Approx(kernels).epsilon(1e-9));
              REQUIRE(micro_batch.ranks[rank].of(Activity::hop) == Approx(time.transfer).margin(1e-12));
            }
          }
        }
        if (stage == 0 && wait) {
          const double difference = relative(simulation.schedule_seconds, closed.schedule_seconds);
          least = std::min(least, difference);
          most = std::max(most, difference);
        }
      }
    }
  }
  // What the closed form does not see: rings that keep unequal ranks together, kernels of one ring behind which
  // another's hops hide.
  INFO("random rings against the closed form: " << 100.0 * least << "% to " << 100.0 * most << "%");
  CHECK(least < -0.001);
  CHECK(least > -0.05);
  CHECK(most > 0.001);
  CHECK(most < 0.1);
}

TEST_CASE("stage 2 and 3 keep replicas together") {
  // Replica 0 has one long sequence, then a short one; replica 1 the other way round: alone each takes long + short.
  const auto cost = qwen_cost();
  Plan plan{
      "lockstep", {2, 1, 1}, 26000, {20000, 300, 300, 20000}, {{{{{0}}, {}}, {{{1}}, {}}}, {{{{2}}, {}}, {{{3}}, {}}}}};
  const auto seconds = [&](int stage) { return simulate_step(plan, cost, {stage, true, false}).schedule_seconds; };
  const double closed = evaluate_plan(plan, cost).schedule_seconds;
  CHECK(seconds(0) == Approx(closed));
  CHECK(seconds(1) == seconds(0));
  const double long_one = evaluate_plan(plan, cost).micro_batch_seconds[0][0];
  CHECK(seconds(3) > 1.95 * long_one);
  CHECK(seconds(2) > 1.3 * closed / 2.0);
  CHECK(seconds(2) <= seconds(3));
  CHECK(seconds(2) > seconds(1));
  // In descending order of time the replicas agree and lose next to nothing.
  std::swap(plan.micro_batches[1][0], plan.micro_batches[1][1]);
  CHECK(seconds(3) < 1.05 * closed);
  CHECK_THROWS_AS(seconds(4), RunFailure);
}

TEST_CASE("lockstep by hand") {
  // Alone, with 3 layers: 1 token takes 13 s a layer forward, 3 the head, 26.5 a layer backward; 5 tokens 31, 15, 69.5.
  const Plan plan{"lockstep", {2, 1, 1}, 5, {1, 5}, {{{{{0}}, {}}}, {{{{1}}, {}}}}};
  const auto begins = [&](int stage) {
    std::vector<double> result;
    for (const Span& span : recorded(plan, unit_cost(3), {stage, true, true}).spans) {
      if (span.replica == 0 && (span.activity == Activity::fixed || span.pass == Pass::head)) {
        result.push_back(span.begin);
      }
    }
    return result;
  };
  CHECK(begins(0) == std::vector<double>{0.0, 13.0, 26.0, 39.0, 42.0, 68.5, 95.0});
  // The third layer backward has to wait until the first one's gradients are added up, when the slow replica has them.
  CHECK(begins(2) == std::vector<double>{0.0, 13.0, 26.0, 39.0, 42.0, 68.5, 108.0 + 69.5});
  // Each block has to wait until the slow replica begins the one before it.
  CHECK(begins(3) == std::vector<double>{0.0, 13.0, 31.0, 62.0, 93.0, 119.5, 108.0 + 69.5});
}

TEST_CASE("empty micro-batches take no time, but join the collectives") {
  const Plan plan{"idle", {2, 1, 1}, 300, {300}, {{{{{0}}, {}}}, {{{{}}, {}}}}};
  const CostModel cost = qwen_cost();
  const Simulation simulation = recorded(plan, cost);
  CHECK(simulation.micro_batches[1][0].empty);
  CHECK(simulation.micro_batches[1][0].end == 0.0);
  CHECK(simulation.schedule_seconds == Approx(evaluate_plan(plan, cost).schedule_seconds));
  const Simulation sharded = recorded(plan, cost, {2, true, true});
  CHECK(sharded.micro_batches[1][0].end > 0.0);
  CHECK(sharded.micro_batches[1][0].ranks[0].busy() == 0.0);
  // 24 layers and the embedding, once.
  CHECK(sharded.collectives.size() == 25);
  // Parameters: 24 layers forward, the head, 24 layers backward.
  CHECK(recorded(plan, cost, {3, true, true}).collectives.size() == 25 + 49);
  CHECK(simulate_step({"none", {2, 1, 1}, 300, {}, {{}, {}}}, cost).schedule_seconds == 0.0);
}

TEST_CASE("a step of 32 ranks with rings of every size: near the closed form") {
  Rng rng(5, "simulator");
  Plan plan{
      "rings", {4, 8, 8}, 1 << 20, {}, {4, {3, PlannedMicroBatch{std::vector<std::vector<std::int64_t>>(8), {}}}}};
  for (std::int64_t sequence = 0; sequence < 256; ++sequence) {
    plan.lengths.push_back(1 + static_cast<std::int64_t>(rng.below(8000)));
    PlannedMicroBatch& micro_batch = plan.micro_batches[rng.below(4)][rng.below(3)];
    const int first = static_cast<int>(rng.below(7));
    if (sequence % 8 == 0) {
      std::vector<int> ring(2 + rng.below(static_cast<std::uint64_t>(7 - first)));
      std::iota(ring.begin(), ring.end(), first);
      micro_batch.distributed.push_back({sequence, ring});
    } else {
      micro_batch.local[static_cast<std::size_t>(first)].push_back(sequence);
    }
  }
  const CostModel cost = qwen_cost();
  const double closed = evaluate_plan(plan, cost).schedule_seconds;
  CHECK(std::abs(relative(simulate_step(plan, cost).schedule_seconds, closed)) < 0.05);
}
