// skrull plan from outside: plans from a config and lengths alone, comparisons, files, bad input.
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "skrull/config/choices.h"
#include "skrull/core/file.h"
#include "skrull/schedule/bound.h"
#include "skrull/schedule/comparison.h"
#include "skrull/schedule/plan_io.h"
#include "support/catch.h"
#include "train/training_fixture.h"

using namespace skrull;
using test::contains;
namespace fs = std::filesystem;

namespace {

const std::string two_batches = "900 30 20 411 77 8 150 60\n5 1200 33 21 60 60 60 60 700 9\n";

ModelShape tiny_shape() {
  const Json json = Json::parse(read_file(fs::path(test::tiny_model()) / "config.json"));
  return {json.at("hidden_size"),
          json.at("num_hidden_layers"),
          json.at("num_attention_heads"),
          json.at("num_key_value_heads"),
          json.value("head_dim",
                     json.at("hidden_size").get<std::int64_t>() / json.at("num_attention_heads").get<std::int64_t>()),
          json.at("intermediate_size"),
          json.at("vocab_size")};
}

/// A folder with a model of which only config.json is there, a config and lengths.
struct Fixture : test::TrainingFixture {
  Fixture() {
    fs::create_directories(*this / "model");
    fs::copy(fs::path(test::tiny_model()) / "config.json", *this / "model" / "config.json");
    write_config(OrderedJson::object());
    write("lengths.txt", two_batches);
  }

  void write_config(const OrderedJson& changes) {
    OrderedJson config = {{"model_name_or_path", (*this / "model").string()},
                          {"context_parallel_size", 4},
                          {"ranks_per_node", 4},
                          {"bucket_tokens", 400},
                          {"global_batch_size", 3},
                          {"hardware_profile", "h100_4x8"}};
    config.update(changes);
    write("plan.json", config.dump());
  }

  std::string path(const std::string& name) const { return (*this / name).string(); }

  test::CommandResult plan(const std::vector<std::string>& more, const std::string& lengths = "lengths.txt") {
    std::vector<std::string> arguments = {"plan", path("plan.json")};
    if (!lengths.empty()) arguments.insert(arguments.end(), {"--lengths", path(lengths)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::run_skrull(arguments);
  }

  /// The message of a plan that is refused with exit code 2.
  std::string refusal(const std::vector<std::string>& more, const std::string& lengths = "lengths.txt") {
    const test::CommandResult result = plan(more, lengths);
    CHECK(result.exit_code == 2);
    CHECK(result.output.empty());
    return result.errors;
  }
};

}  // namespace

TEST_CASE("--memory tells the memory of a rank in every layout, without lengths") {
  Fixture fixture;
  const auto result = fixture.plan({"--memory", "--ranks", "8", "--json", "zero_stage=3"}, "");
  const Json json = test::result_of(result);
  CHECK(json.at("ranks") == 8);
  CHECK(json.at("tokens") == 400);
  REQUIRE(json.at("layouts").size() == 12);
  std::map<std::pair<int, std::string>, Json> layouts;
  for (const Json& layout : json.at("layouts")) {
    layouts[{layout.at("zero_stage"), layout.at("gradient_checkpointing")}] = layout;
    std::int64_t total = 0;
    for (const auto& [category, bytes] : layout.at("bytes_by_category").items()) total += bytes.get<std::int64_t>();
    CHECK(layout.at("total_bytes") == total);
  }
  const auto bytes = [&](int stage, const char* recompute, const char* category) {
    return layouts.at({stage, recompute}).at("bytes_by_category").at(category).get<std::int64_t>();
  };
  CHECK(bytes(0, "none", "activations") > bytes(0, "selective", "activations"));
  CHECK(bytes(0, "selective", "activations") > bytes(0, "full", "activations"));
  CHECK(bytes(0, "full", "optimizer state") > 7 * bytes(1, "full", "optimizer state"));
  CHECK(bytes(1, "full", "gradients") > 7 * bytes(2, "full", "gradients"));
  CHECK(bytes(2, "full", "parameters") > 7 * bytes(3, "full", "parameters"));
  CHECK(contains(result.errors, "memory of each of 8 ranks (data parallel 2 x context parallel 4)"));
  CHECK(contains(fixture.refusal({"--memory", "--compare", "all"}, ""), "--compare excludes --memory"));
}

TEST_CASE("a plan has the model, the ranks and the lengths that were asked for") {
  Fixture fixture;
  const auto result = fixture.plan(
      {"--ranks", "8", "--batch", "1", "--policy", "packed", "--output", fixture.path("out.json"), "--json"});
  const Json json = test::result_of(result);
  const PlanFile file = read_plan(fixture / "out.json");
  CHECK(file.model == tiny_shape());
  CHECK(file.plan.policy == "packed");
  CHECK(file.plan.topology.data_parallel == 2);
  CHECK(file.plan.topology.context_parallel == 4);
  CHECK(file.plan.topology.ranks_per_node == 4);
  CHECK(file.plan.bucket_tokens == 400);
  CHECK(file.plan.lengths == std::vector<std::int64_t>{5, 1200, 33, 21, 60, 60, 60, 60, 700, 9});
  const CostModel cost(file.model, find_hardware_profile("h100_4x8"));
  const PlanCost expected = evaluate_plan(file.plan, cost);
  const double bound = lower_bound({file.plan.lengths, file.plan.topology, 400}, cost).seconds;
  CHECK(file.predicted_step_seconds == expected.schedule_seconds);
  CHECK(file.bound_seconds == bound);
  CHECK(json.at("schedule_seconds") == expected.schedule_seconds);
  CHECK(json.at("step_seconds") == expected.step_seconds);
  CHECK(json.at("tokens") == 2208);
  CHECK(json.at("gap").get<double>() == Approx(expected.schedule_seconds / bound - 1.0));
  CHECK(json.at("peak_tokens") == expected.peak_tokens);
  CHECK(json.at("plan").dump() == Json::parse(read_file(fixture / "out.json")).dump());
  REQUIRE(json.at("ranks").size() == 8);
  std::int64_t tokens = 0;
  for (const Json& rank : json.at("ranks")) {
    tokens += rank.at("tokens").get<std::int64_t>();
    const auto memory = json.at("memory");
    CHECK(rank.at("memory_bytes") <= json.at("peak_memory_bytes"));
  }
  CHECK(tokens == 2208);
  CHECK(contains(result.errors, "predicted step: "));
  CHECK(contains(result.errors, "rank   7: "));
}

TEST_CASE("every policy of a config can be planned, and is deterministic") {
  Fixture fixture;
  std::set<std::string> known;
  for (const auto& choice : choices_of<SchedulingPolicy>) {
    const std::string policy(choice.name);
    known.insert(policy);
    fixture.write_config({{"scheduler", {{"policy", policy}}}});
    const auto run = [&](const std::string& output) {
      INFO(policy);
      CHECK(fixture.plan({"--ranks", "8", "--output", fixture.path(output)}).exit_code == 0);
      Json json = Json::parse(read_file(fixture / output));
      CHECK(json.at("policy") == policy);
      return json.at("micro_batches");
    };
    CHECK(run("a.json") == run("b.json"));
  }
  CHECK(known == std::set<std::string>(policy_names().begin(), policy_names().end()));
  CHECK(policy_names().front() == name_of(SchedulerConfig().policy));
}

TEST_CASE("lengths one a line are grouped by global_batch_size; ranks default to one replica") {
  Fixture fixture;
  fixture.write("column.txt", "10\n20\n30\n40\n50\n60\n70\n");
  const auto lengths = [&](const std::string& batch) {
    const Json json = test::result_of(fixture.plan({"--batch", batch, "--json"}, "column.txt"));
    CHECK(json.at("topology").at("data_parallel") == 1);
    CHECK(json.at("topology").at("context_parallel") == 4);
    return json.at("plan").at("sequences").get<std::vector<std::int64_t>>();
  };
  CHECK(lengths("0") == std::vector<std::int64_t>{10, 20, 30});
  CHECK(lengths("2") == std::vector<std::int64_t>{70});
  CHECK(contains(fixture.refusal({"--batch", "3"}, "column.txt"),
                 "column.txt has 3 global batches, 0 to 2: there is no batch 3"));
}

TEST_CASE("lengths come from the config's dataset, in the order of training") {
  Fixture fixture;
  const fs::path rows = fixture.write("rows.jsonl", test::random_rows(1, 20, 60, 64));
  fixture.write_config({{"dataset", rows.string()}, {"data_order", "sequential"}});
  std::vector<std::int64_t> all;
  std::istringstream lines(read_file(rows));
  for (std::string line; std::getline(lines, line);) {
    all.push_back(static_cast<std::int64_t>(Json::parse(line).at("input_ids").size()));
  }
  const Json json = test::result_of(fixture.plan({"--batch", "2", "--json"}, ""));
  CHECK(json.at("plan").at("sequences") == std::vector<std::int64_t>(all.begin() + 6, all.begin() + 9));
  fixture.write_config({{"dataset", rows.string()}, {"data_order", "sequential"}, {"bucket_tokens", 4}});
  CHECK(contains(fixture.refusal({}, ""), "rows.jsonl:1: a sequence of "));
  fixture.write_config({{"dataset", rows.string()}, {"max_steps", 5}});
  CHECK(contains(fixture.refusal({"--batch", "5"}, ""), "the run has 5 steps, 0 to 4: there is no global batch 5"));
}

TEST_CASE("policies are compared over several batches") {
  Fixture fixture;
  const Json json = test::result_of(fixture.plan({"--ranks", "8", "--compare", "all", "--batches", "2", "--json"}));
  CHECK(json.at("batches") == 2);
  const std::vector<std::vector<std::int64_t>> batches = {{900, 30, 20, 411, 77, 8, 150, 60},
                                                          {5, 1200, 33, 21, 60, 60, 60, 60, 700, 9}};
  const CostModel cost(tiny_shape(), find_hardware_profile("h100_4x8"));
  const auto expected = compare_policies(policy_names(), batches, {2, 4, 4}, 400, cost);
  REQUIRE(json.at("policies").size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Json& row = json.at("policies")[i];
    CHECK(row.at("policy") == expected[i].policy);
    CHECK(row.at("schedule_seconds") == expected[i].schedule_seconds);
    CHECK(row.at("gap") == expected[i].mean_gap);
    CHECK(row.at("peak_tokens") == expected[i].peak_tokens);
    CHECK(row.at("speedup_over").at("packed").get<double>() * expected[i].schedule_seconds ==
          Approx(expected[1].schedule_seconds));
  }
  const Json two = test::result_of(fixture.plan({"--compare", "deepspeed,packed", "--json"}));
  CHECK(two.at("policies").size() == 2);
  CHECK(two.at("batches") == 1);
}

TEST_CASE("a timeline is drawn as SVG and as a trace") {
  Fixture fixture;
  CHECK(fixture.plan({"--timeline", fixture.path("t.svg")}).exit_code == 0);
  CHECK(read_file(fixture / "t.svg").starts_with("<"));
  CHECK(contains(read_file(fixture / "t.svg"), "</svg>"));
  CHECK(fixture.plan({"--timeline", fixture.path("t.json")}).exit_code == 0);
  CHECK(Json::parse(read_file(fixture / "t.json")).at("traceEvents").size() > 10);
  CHECK(contains(fixture.refusal({"--timeline", "t.png"}), "ends in .svg or .json"));
}

TEST_CASE("a plan that is there can be judged on other hardware") {
  Fixture fixture;
  CHECK(fixture.plan({"--ranks", "8", "--output", fixture.path("out.json")}).exit_code == 0);
  const Json json =
      test::result_of(fixture.plan({"--read", fixture.path("out.json"), "--hardware", "cpu", "--json"}, ""));
  const PlanFile file = read_plan(fixture / "out.json");
  const CostModel cost(file.model, find_hardware_profile("cpu"));
  CHECK(json.at("schedule_seconds") == evaluate_plan(file.plan, cost).schedule_seconds);
  CHECK(json.at("topology").at("data_parallel") == 2);
  fixture.write("bad.json", R"({"format": "skrull-plan/1", "policy": 7})");
  CHECK(contains(fixture.refusal({"--read", fixture.path("bad.json")}, ""),
                 "bad.json: policy: expected a string, got the number 7"));
}

TEST_CASE("bucket_tokens auto comes from the profile's memory") {
  Fixture fixture;
  fixture.write_config({{"bucket_tokens", "auto"}});
  const Json json = test::result_of(fixture.plan({"--json"}));
  const auto& memory = json.at("memory");
  CHECK(memory.at("device_bytes") == find_hardware_profile("h100_4x8").device_memory_bytes.value());
  const auto used = memory.at("fixed_bytes").get<double>() +
                    json.at("bucket_tokens").get<double>() * memory.at("bytes_per_token").get<double>();
  CHECK(used == Approx(0.96 * memory.at("device_bytes").get<double>()).epsilon(1e-3));

  Json profile = Json::parse(read_file(fs::path(SKRULL_SOURCE_DIR) / "configs" / "hardware" / "h100_4x8.profile.json"));
  profile["device_memory_bytes"] = 100000;
  fixture.write("small.json", profile.dump());
  CHECK(
      contains(fixture.refusal({"--hardware", fixture.path("small.json")}), "bucket_tokens auto: the training state"));
}

TEST_CASE("sequences that fit no ring are named with what would do") {
  Fixture fixture;
  // 1200 tokens over 4 ranks: 300 each.
  CHECK(contains(
      fixture.refusal({"--batch", "1", "bucket_tokens=299"}),
      "lengths.txt:2: length 2 of the line: a sequence of 1200 tokens fits no ring of 4 context-parallel ranks "
      "with bucket_tokens 299: set bucket_tokens to at least 300, or context_parallel_size to at least 5"));
  CHECK(fixture.plan({"--batch", "1", "bucket_tokens=300"}).exit_code == 0);
  CHECK(fixture.plan({"--batch", "1", "bucket_tokens=299", "context_parallel_size=5"}).exit_code == 0);
  CHECK(contains(fixture.refusal({"--compare", "all", "--batches", "2", "bucket_tokens=299"}),
                 "lengths.txt:2: length 2"));
}

TEST_CASE("bad lengths and bad arguments are refused") {
  Fixture fixture;
  const auto refusal_of = [&](const std::string& content) {
    fixture.write("bad.txt", content);
    return fixture.refusal({}, "bad.txt");
  };
  CHECK(contains(refusal_of("5 6\n7 0\n"), "bad.txt:2: \"0\" is no length: expected whole numbers from 1"));
  CHECK(contains(refusal_of("5\n-6\n"), "bad.txt:2: \"-6\" is no length"));
  CHECK(contains(refusal_of("5 6\n7 8.5\n"), "bad.txt:2: \"8.5\" is no length"));
  CHECK(contains(refusal_of("5,6\n"), "bad.txt:1: \"5,6\" is no length"));
  CHECK(contains(refusal_of("99999999999999999999 1\n"), "bad.txt:1: "));
  CHECK(contains(refusal_of("5 6\n\n7 8\n"), "bad.txt:2: the line is empty"));
  CHECK(contains(refusal_of("\n\n"), "bad.txt: the file holds no lengths"));
  CHECK(contains(fixture.refusal({}, "none.txt"), "none.txt"));
  CHECK(contains(fixture.refusal({}, ""), "no lengths to plan"));
  CHECK(contains(fixture.refusal({"--batch", "2"}), "has 2 global batches, 0 to 1: there is no batch 2"));
  CHECK(contains(fixture.refusal({"--batch", "-1"}), "--batch"));
  CHECK(contains(fixture.refusal({"--ranks", "6"}), "context_parallel_size 4 does not divide the 6 ranks"));
  CHECK(contains(fixture.refusal({"--ranks", "64"}), "8 sequences for 16 replicas"));
  CHECK(contains(fixture.refusal({"--policy", "packd"}), "did you mean packed?"));
  CHECK(contains(fixture.refusal({"--hardware", "h100_4x9"}), "did you mean h100_4x8?"));
  CHECK(contains(fixture.refusal({"--compare", "all", "--output", "x.json"}), "excludes"));
  CHECK(contains(fixture.refusal({"contxt_parallel_size=2"}), "did you mean context_parallel_size?"));
  OrderedJson profile =
      OrderedJson::parse(read_file(fs::path(SKRULL_SOURCE_DIR) / "configs" / "hardware" / "cpu.profile.json"));
  profile["linear"]["efficiency"] = {{16, 0.5}, {8, 0.6}};
  fixture.write("falling.json", profile.dump());
  CHECK(contains(
      fixture.refusal({"--hardware", fixture.path("falling.json")}),
      "falling.json: linear.efficiency[1][0]: expected a position above the one before, 16, got the number 8"));
}

TEST_CASE("training refuses what only a plan can do") {
  Fixture fixture;
  fixture.write("rows.jsonl", "{\"input_ids\": [1, 2, 3]}\n");
  const std::string dataset = "dataset=" + fixture.path("rows.jsonl");
  const auto sorted = fixture.run("out", {dataset, "scheduler.policy=sorted"});
  CHECK(sorted.exit_code == 2);
  CHECK(contains(sorted.errors, "use data_order sorted_batches with scheduler.policy deepspeed"));
  CHECK(!fs::exists(fixture / "out" / "model.safetensors"));
}
