#include "skrull/schedule/plan_io.h"

#include <string>

#include "data/errors.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;
using test::contains;
using test::invalid_input_of;

namespace {

/// Two replicas of two ranks: a ring and local sequences; the second replica has one micro-batch less.
PlanFile good_file() {
  PlannedMicroBatch mixed{{{}, {0}}, {{1, {0, 1}}}};
  PlannedMicroBatch late{{{3}, {}}, {}};
  PlannedMicroBatch whole{{{2}, {}}, {}};
  PlannedMicroBatch empty{{{}, {}}, {}};
  PlanFile file;
  file.plan = {"by hand", {2, 2, 4}, 10, {4, 11, 10, 7}, {{mixed, late}, {whole, empty}}};
  file.model = {64, 2, 4, 2, 16, 128, 512};
  file.predicted_step_seconds = 0.1 + 0.2;
  file.bound_seconds = 0.25;
  file.scheduling_seconds = 1e-5;
  return file;
}

/// The file after `edit`, as text.
template <class Edit>
std::string edited(const Edit& edit) {
  OrderedJson json = OrderedJson::parse(plan_to_json(good_file()));
  edit(json);
  return json.dump();
}

template <class Edit>
std::string complaint(const Edit& edit) {
  const std::string text = edited(edit);
  return invalid_input_of([&] { parse_plan(text, "p.json"); });
}

}  // namespace

TEST_CASE("a plan file is one line and comes back as it was") {
  const std::string text = plan_to_json(good_file());
  CHECK(text.find('\n') == text.size() - 1);
  const PlanFile read = parse_plan(text, "p.json");
  CHECK(plan_to_json(read) == text);
  CHECK(read.plan.policy == "by hand");
  CHECK(read.model == good_file().model);
  CHECK(read.predicted_step_seconds == 0.1 + 0.2);
  CHECK(read.bound_seconds == 0.25);
  CHECK(read.scheduling_seconds == 1e-5);
  CHECK(read.plan.topology.ranks_per_node == 4);
  // The file leaves out the micro-batch that evens out the replicas; reading puts it back.
  const OrderedJson json = OrderedJson::parse(text);
  CHECK(json["micro_batches"][1].size() == 1);
  REQUIRE(read.plan.micro_batches[1].size() == 2);
  CHECK(is_empty(read.plan.micro_batches[1][1]));
  CHECK(read.plan.micro_batches[0][0].distributed[0].ranks == std::vector<int>{0, 1});
  CHECK(json["predicted"]["gap"].get<double>() == Approx(0.2).epsilon(1e-12));
}

TEST_CASE("a written plan is read back from its file") {
  const test::TemporaryFolder folder;
  write_plan(folder / "plan.json", good_file());
  CHECK(plan_to_json(read_plan(folder / "plan.json")) == plan_to_json(good_file()));
  CHECK(contains(invalid_input_of([&] { read_plan(folder / "none.json"); }), "none.json"));
}

TEST_CASE("further keys of a plan file are ignored") {
  CHECK(complaint([](OrderedJson& json) { json["made_by"] = "me"; }) == "(nothing thrown)");
  CHECK(complaint([](OrderedJson& json) { json["predicted"].erase("bound_seconds"); }) == "(nothing thrown)");
}

TEST_CASE("malformed plans are refused with path, expected and got") {
  using J = OrderedJson;
  CHECK(complaint([](J& j) { j["format"] = "skrull-plan/2"; }) ==
        R"(p.json: format: expected "skrull-plan/1", got the string "skrull-plan/2")");
  CHECK(complaint([](J& j) { j.erase("format"); }) == R"(p.json: the key "format" is missing)");
  CHECK(complaint([](J& j) { j["model"].erase("head_dim"); }) == R"(p.json: model: the key "head_dim" is missing)");
  CHECK(complaint([](J& j) { j["model"]["num_layers"] = 2.5; }) ==
        "p.json: model.num_layers: expected a whole number of at least 1, got the number 2.5");
  CHECK(complaint([](J& j) { j["topology"] = J::array(); }) == "p.json: topology: expected an object, got a list");
  CHECK(complaint([](J& j) { j["topology"]["data_parallel"] = 0; }) ==
        "p.json: topology.data_parallel: expected a whole number from 1 to 1048576, got the number 0");
  CHECK(complaint([](J& j) { j["topology"]["data_parallel"] = 3; }) ==
        "p.json: micro_batches: expected one list of micro-batches for each of 3 replicas, got a list of 2");
  CHECK(complaint([](J& j) { j["bucket_tokens"] = "auto"; }) ==
        R"(p.json: bucket_tokens: expected a whole number of at least 1, got the string "auto")");
  CHECK(complaint([](J& j) { j["sequences"][2] = -7; }) ==
        "p.json: sequences[2]: expected a whole number of at least 1, got the number -7");
  CHECK(complaint([](J& j) { j["micro_batches"][0][1]["local"].erase(1); }) ==
        "p.json: micro_batches[0][1].local: expected one list of sequences for each of 2 context-parallel ranks, got a "
        "list of 1");
  CHECK(complaint([](J& j) { j["micro_batches"][1][0]["local"][0][0] = 4; }) ==
        "p.json: micro_batches[1][0].local[0][0]: expected a whole number from 0 to 3, got the number 4");
  CHECK(complaint([](J& j) { j["micro_batches"][0][0].erase("distributed"); }) ==
        R"(p.json: micro_batches[0][0]: the key "distributed" is missing)");
  CHECK(complaint([](J& j) { j["micro_batches"][0][0]["distributed"][0]["ranks"][1] = 2; }) ==
        "p.json: micro_batches[0][0].distributed[0].ranks[1]: expected a whole number from 0 to 1, got the number 2");
  CHECK(complaint([](J& j) { j["predicted"]["step_seconds"] = -1; }) ==
        "p.json: predicted.step_seconds: expected a number of at least 0, got the number -1");
  CHECK(complaint([](J& j) { j["scheduling_seconds"] = nullptr; }) ==
        "p.json: scheduling_seconds: expected a number, got null");
  CHECK(contains(invalid_input_of([] { parse_plan("{\n \"format\": }", "p.json"); }), "p.json: line 2, column 12"));
  CHECK(contains(invalid_input_of([] { parse_plan(R"({"format": 1, "format": 2})", "p.json"); }),
                 "p.json: format: the key stands in the file twice"));
  CHECK(invalid_input_of([] { parse_plan("[]", "p.json"); }) == "p.json: expected an object, got a list");
}

TEST_CASE("a plan that breaks a rule is refused with the rule") {
  CHECK(complaint([](OrderedJson& json) { json["micro_batches"][1][0]["local"][0].clear(); }) ==
        "p.json: plan: sequence 2 is computed 0 times, expected once");
  CHECK(complaint([](OrderedJson& json) { json["bucket_tokens"] = 9; }) ==
        "p.json: plan: replica 0, micro-batch 0: rank 1 holds 10 tokens, more than bucket_tokens 9");
}
