// What a step's timeline says: trace.json, the times in metrics.jsonl, emulated networks and the benchmarks on them.
#include <algorithm>
#include <set>

#include "skrull/core/file.h"
#include "skrull/schedule/cost_model.h"
#include "skrull/train/policy_benchmark.h"
#include "support/catch.h"
#include "support/cost_model.h"
#include "training_fixture.h"

using namespace skrull;
using test::Overrides;

namespace {

/// Runs of 2 x 2 ranks over a long sequence and short ones. Processor time: transfers take what the network says.
struct Fixture : test::TrainingFixture {
  Json train(const std::string& output, const Overrides& more) {
    std::vector<test::TokenRow> rows = test::random_rows(3, 14, 40, 97);
    for (const std::size_t length : {300, 280}) rows.push_back({std::vector<std::int32_t>(length, 5)});
    const Overrides options = test::joined(
        {"dataset=" + write("rows.jsonl", rows).string(), "max_steps=4", "global_batch_size=8",
         "context_parallel_size=2", "bucket_tokens=200", "data_order=sequential", "emulated_network.clock=processor",
         "emulated_network.bytes_per_s=1e6", "emulated_network.latency_s=1e-4"},
        more);
    const test::CommandResult result = run(output, options, 4);
    INFO(result.errors);
    REQUIRE(result.exit_code == 0);
    return test::result_of(result);
  }
};

struct TraceEvent {
  std::string name;
  std::string category;
  std::int64_t rank = 0;
  double begin = 0.0;
  double end = 0.0;
  Json arguments;
};

std::vector<TraceEvent> events_of(const std::filesystem::path& file) {
  std::vector<TraceEvent> events;
  const Json trace = Json::parse(read_file(file));
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts");
    events.push_back({event.at("name"), event.at("cat"), event.at("pid"), begin, begin + event.at("dur").get<double>(),
                      event.at("args")});
  }
  return events;
}

}  // namespace

TEST_CASE("trace.json holds what every rank did, by micro-batch, layer, hop and sequence", "[trace]") {
  Fixture fixture;
  fixture.train("run", {"trace=true", "trace_first_step=2", "trace_steps=2"});
  const std::vector<TraceEvent> events = events_of(fixture / "run" / "trace.json");
  std::set<std::int64_t> ranks;
  std::set<std::int64_t> steps;
  std::set<std::string> names;
  for (const TraceEvent& event : events) {
    ranks.insert(event.rank);
    steps.insert(event.arguments.at("step").get<std::int64_t>());
    names.insert(event.name);
    CHECK(event.begin >= 0.0);
    CHECK(event.end >= event.begin);
    if (event.category != "communication" || event.name.rfind("keys and values", 0) != 0) continue;
    CHECK(event.arguments.at("hop") == 1);
    const std::int64_t layer = event.arguments.at("layer");
    CHECK((layer == 0 || layer == 1));
    REQUIRE(event.arguments.at("sequences").size() >= 1);
    CHECK(event.arguments.at("sequences").at(0).at("ring") == Json({0, 1}));
    // At 1 MB/s, 0.1 ms and the bytes of half a sequence: 2 x 32 fp32 elements a token.
    CHECK(event.end - event.begin > 99.99 + 140 * 2 * 32 * 4);  // rounded to nanoseconds
  }
  CHECK(ranks == std::set<std::int64_t>{0, 1, 2, 3});
  CHECK(steps == std::set<std::int64_t>{2, 3});
  for (const char* name :
       {"micro-batch", "layer forward", "layer backward", "local attention", "head and loss", "keys and values, hop 1",
        "wait for keys and values, hop 1", "ring attention, hop 1", "gradients, hop 1", "sum gradients", "update"}) {
    INFO(name);
    CHECK(names.count(name) == 1);
  }
}

TEST_CASE("sends run behind the local attention", "[trace]") {
  Fixture fixture;
  fixture.train("run", {"trace=true"});
  const std::vector<TraceEvent> events = events_of(fixture / "run" / "trace.json");
  std::int64_t overlapping = 0;
  for (const TraceEvent& send : events) {
    if (send.name != "keys and values, hop 1") continue;
    overlapping += std::count_if(events.begin(), events.end(), [&](const TraceEvent& other) {
      return other.rank == send.rank && other.category == "compute" && other.name.rfind("local attention", 0) == 0 &&
             other.begin < send.end && other.end > send.begin;
    });
  }
  CHECK(overlapping > 0);
}

TEST_CASE("metrics.jsonl tells where tokens lay and how long sends took and delayed", "[trace]") {
  Fixture fixture;
  fixture.train("run", {"data_order=sequential"});
  const auto metrics = test::read_metrics(fixture / "run");
  REQUIRE(metrics.steps.size() == 4);
  for (std::size_t step = 0; step < 4; ++step) {
    const Json& row = metrics.steps[step];
    INFO(row.dump());
    CHECK(row.at("local_tokens").get<std::int64_t>() + row.at("ring_tokens").get<std::int64_t>() == row.at("tokens"));
    // The rows of every second step end with the long ones, which fit on no single rank.
    const bool has_rings = step % 2 == 1;
    CHECK((row.at("ring_tokens").get<std::int64_t>() >= 580) == has_rings);
    CHECK(row.at("predicted_step_seconds") > 0.0);
    CHECK(row.at("imbalance") >= 1.0);
    CHECK(row.at("imbalance") <= 4.0);
    if (!has_rings) continue;
    // Two hops forward and back per layer, and the gradients' hop, at 1 MB/s.
    CHECK(row.at("comm_seconds") >= 2 * 140 * 2 * 32 * 4 * 3 * 1e-6);
    CHECK(row.at("comm_exposed_seconds") > 0.0);
  }
}

TEST_CASE("an emulated network changes times, not numbers", "[trace]") {
  Fixture fixture;
  const Json slow = fixture.train("slow", {});
  const Json fast = fixture.train("fast", {"emulated_network.bytes_per_s=0"});
  CHECK(slow.at("loss") == fast.at("loss"));
  CHECK(read_file(fixture / "slow" / "model.safetensors") == read_file(fixture / "fast" / "model.safetensors"));
}

TEST_CASE("the emulated link is to the model here what the cluster's is to the model there", "[trace]") {
  const ModelShape model = test::small_cost_model()->model();
  const HardwareProfile cluster = find_hardware_profile("h100_4x8");
  const ModelOnHardware there{model, cluster};
  const LinkRate same = emulated_link(there, there, 1.0, 4096);
  CHECK(same.bytes_per_s == Approx(cluster.intra_node.bytes_per_s));
  CHECK(same.latency_s == Approx(cluster.intra_node.latency_s));

  ModelOnHardware here = there;
  std::vector<LogLogCurve::Point> peaks = cluster.linear_peak_flops.points();
  for (LogLogCurve::Point& point : peaks) point.value /= 1000.0;
  here.hardware.linear_peak_flops = LogLogCurve(peaks, LogLogCurve::BelowFirst::constant);
  const LinkRate slower = emulated_link(here, there, 1.0, 4096);
  CHECK(slower.bytes_per_s == Approx(cluster.intra_node.bytes_per_s / 1000.0));
  CHECK(slower.latency_s == Approx(1000.0 * cluster.intra_node.latency_s));
  // Sequences of a quarter of the tokens take a quarter of the time, and have a quarter of the bytes.
  const LinkRate shorter = emulated_link(here, there, 0.25, 4096);
  const double efficiency = CostModel(model, cluster).linear_seconds_per_token(16384) /
                            CostModel(model, cluster).linear_seconds_per_token(4096);
  CHECK(shorter.bytes_per_s == Approx(cluster.intra_node.bytes_per_s / 1000.0 * efficiency));
  CHECK(shorter.latency_s == Approx(250.0 * cluster.intra_node.latency_s / efficiency));
}

namespace {

/// The result of `skrull bench` on two ranks.
Json bench(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"bench"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const test::CommandResult result = test::run_skrull(all, 2);
  INFO(result.errors);
  REQUIRE(result.exit_code == 0);
  return test::result_of(result);
}

}  // namespace

TEST_CASE("bench zero --overlap: the link carries what the stage sends, and is as slow as was asked", "[trace]") {
  constexpr double parameters = 20288;
  constexpr double micro_batches = 3;
  const Json result = bench({"zero", "--overlap", "--model", test::tiny_model(), "--tokens=32", "--steps=2",
                             "--micro-batches=3", "--transfer-share=0.5", "--json"});
  const auto rate = result.at("bytes_per_second").get<double>();
  // A ring of two: half of what is reduced. Every block once in each micro-batch, in fp32.
  CHECK(result.at("scatters").at("transfer_seconds").get<double>() * rate ==
        Approx(micro_batches * parameters * 4 / 2).epsilon(1e-6));
  CHECK(result.at("gathers").at("transfer_seconds").get<double>() > 0.0);
  for (const char* part : {"gathers", "scatters", "all"}) CHECK(result.at(part).at("hidden_share") <= 1.0);
  const test::CommandResult alone = test::run_skrull({"bench", "zero", "--overlap"});
  CHECK(alone.exit_code == 2);
  CHECK(test::contains(alone.errors, "mpirun -np"));
}

TEST_CASE("bench checkpoint saves and loads the whole state and leaves nothing", "[trace]") {
  const test::TemporaryFolder folder;
  const Json result =
      bench({"checkpoint", "--model", test::tiny_model(), "--folder", folder.path().string(), "--turns=2", "--json"});
  // Weights in bfloat16; masters and two moments in fp32; headers, configs, manifest.
  CHECK(result.at("bytes") > 20288 * (2 + 3 * 4));
  for (const char* way : {"write", "read"}) {
    CHECK(result.at(way).at("bytes_per_second") > 0.0);
    CHECK(result.at(way).at("over_plain") > 0.0);
    CHECK(result.at(way).at("over_fastest") <= result.at(way).at("over_plain"));
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("bench ring, bench policies and profile measure over ranks", "[trace]") {
  const Json ring = bench({"ring", "--ring-tokens=64", "--local-tokens=64", "--local-sequences=2", "--alone-tokens=128",
                           "--turns=1", "--json"});
  CHECK(ring.at("ranks") == 2);
  for (const char* pass : {"forward", "backward", "forward_without_local", "backward_without_local"}) {
    CHECK(ring.at(pass).at("hidden_share") <= 1.0);
    CHECK(ring.at(pass).at("transfer_seconds") > 0.0);
  }
  const Json policies =
      bench({"policies", "--context-parallel=2", "--batches=1", "--global-batch-size=6", "--longest=800",
             "--bucket-tokens=200", "--profile-seconds=0.2", "--turns=1", "--policies=skrull,packed", "--json"});
  CHECK(policies.at("data_parallel") == 1);
  REQUIRE(policies.at("policies").size() == 2);
  CHECK(policies.at("policies").at(0).at("policy") == "skrull");
  CHECK(policies.at("policies").at(0).at("slower_than_first") == 1.0);
  for (const Json& policy : policies.at("policies")) {
    CHECK(policy.at("measured_seconds") > 0.0);
    CHECK(policy.at("predicted_seconds") > 0.0);
  }
  const test::TemporaryFolder folder;
  const test::CommandResult measured =
      test::run_skrull({"profile", "--model", test::test_data("model/tied_mha_d16").string(), "--output",
                        (folder / "two.profile.json").string(), "--seconds", "0.2", "--json"},
                       2);
  INFO(measured.errors);
  REQUIRE(measured.exit_code == 0);
  const Json profile = test::result_of(measured).at("profile");
  CHECK(profile.at("links").at("intra").at("bytes_per_s") > 0.0);
  CHECK(profile.at("sources").at("links.intra").get<std::string>().rfind("measured: hops", 0) == 0);
  CHECK(profile.at("sources").at("links.inter").get<std::string>().rfind("assumed", 0) == 0);
  CHECK_NOTHROW(find_hardware_profile((folder / "two.profile.json").string()));

  const test::CommandResult alone = test::run_skrull({"bench", "ring"});
  CHECK(alone.exit_code == 2);
  CHECK(test::contains(alone.errors, "mpirun -np"));
}
