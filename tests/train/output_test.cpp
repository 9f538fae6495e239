// What a run leaves in output_dir: args.json, metrics.jsonl, run.log, checkpoints and the model folder.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "skrull/config/config_docs.h"
#include "skrull/core/file.h"
#include "skrull/model/safetensors.h"
#include "support/catch.h"
#include "training_fixture.h"

using namespace skrull;
using test::joined;
using test::Overrides;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> step_fields = {"step",
                                              "epoch",
                                              "loss",
                                              "grad_norm",
                                              "learning_rate",
                                              "tokens",
                                              "trained_tokens",
                                              "tokens_per_second",
                                              "trained_tokens_per_second",
                                              "step_seconds",
                                              "predicted_step_seconds",
                                              "schedule_seconds",
                                              "schedule_wait_seconds",
                                              "comm_seconds",
                                              "comm_exposed_seconds",
                                              "imbalance",
                                              "local_tokens",
                                              "ring_tokens",
                                              "mfu",
                                              "peak_memory_bytes",
                                              "peak_device_memory_bytes",
                                              "eta_seconds",
                                              "skipped_steps"};
const std::vector<std::string> eval_fields = {"step",        "epoch",       "eval_loss", "eval_perplexity",
                                              "eval_tokens", "eval_seconds"};

/// 20 rows of 12 tokens, the second half of each trained.
std::vector<test::TokenRow> equal_rows() {
  std::vector<test::TokenRow> rows;
  for (std::int32_t row = 0; row < 20; ++row) {
    test::TokenRow made;
    for (std::int32_t t = 0; t < 12; ++t) made.ids.push_back((row * 29 + t * t * 7) % 97);
    made.labels = made.ids;
    std::fill_n(made.labels->begin(), 6, -100);
    rows.push_back(std::move(made));
  }
  return rows;
}

std::set<std::string> entries_of(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

std::vector<OrderedJson> rows_in_order(const fs::path& file) {
  std::vector<OrderedJson> rows;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) rows.push_back(OrderedJson::parse(line));
  return rows;
}

std::vector<std::string> keys_of(const OrderedJson& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

/// Every option of the schema is in `args`, and nothing else.
void check_all_options(const Json& args, const Json& schema) {
  std::size_t options = 0;
  for (const auto& [key, option] : schema.at("properties").items()) {
    if (key == "$schema" || option.contains("$ref")) continue;  // what a config may also hold, other names
    INFO(key);
    REQUIRE(args.contains(key));
    if (option.contains("properties")) check_all_options(args.at(key), option);
    ++options;
  }
  CHECK(args.size() == options);
}

const std::set<std::string> checkpoint_files = {"config.json",
                                                "generation_config.json",
                                                "model.safetensors",
                                                "manifest.json",
                                                "optimizer-00001-of-00001.safetensors",
                                                "trainer_state.json"};
const std::set<std::string> run_files = {"args.json",          "metrics.jsonl", "run.log",
                                         "trainer_state.json", "config.json",   "generation_config.json",
                                         "model.safetensors"};

std::set<std::string> with_checkpoints(std::set<std::string> names, const std::vector<int>& steps) {
  for (const int step : steps) names.insert(fmt::format("checkpoint-{}", step));
  return names;
}

}  // namespace

TEST_CASE("args.json holds every option as resolved and starts the same run again", "[output]") {
  test::TrainingFixture fixture;
  const auto data = fixture.write("rows.jsonl", test::random_rows(21, 14, 30, 97));
  const Overrides options = {"dataset=" + data.string(), "val_size=3",       "eval_steps=2",
                             "learning_rate=0.002",      "weight_decay=0.1", "num_train_epochs=2",
                             "global_batch_size=4",      "bucket_tokens=64"};
  REQUIRE(fixture.run("first", options).exit_code == 0);
  Json args = read_json_file(fixture / "first" / "args.json");
  check_all_options(args, Json::parse(config_schema()));
  CHECK(args == Json::parse(config_to_json(fixture.config("first", options))));
  CHECK(args.at("learning_rate") == 0.002);
  CHECK(args.at("adam_beta2") == 0.999);
  CHECK(args.at("bucket_tokens") == 64);
  CHECK(args.at("scheduler").at("policy") == "skrull");

  const std::string config = (fixture / "first" / "args.json").string();
  const auto again = test::run_skrull({"train", config, "output_dir=" + (fixture / "second").string()});
  INFO(again.errors);
  REQUIRE(again.exit_code == 0);
  REQUIRE(fixture.metrics("first").steps.size() == 6);
  REQUIRE(fixture.metrics("first").evaluations.size() == 3);
  CHECK(fixture.metrics("second").without_measurements() == fixture.metrics("first").without_measurements());
  CHECK(read_file(fixture / "second" / "model.safetensors") == read_file(fixture / "first" / "model.safetensors"));
  args["output_dir"] = (fixture / "second").string();
  CHECK(read_json_file(fixture / "second" / "args.json") == args);
}

TEST_CASE("metrics.jsonl holds a row for each step and evaluation, with every field", "[output]") {
  test::TrainingFixture fixture;
  const Overrides options = {"dataset=" + fixture.write("rows.jsonl", equal_rows()).string(),
                             "val_size=4",
                             "eval_steps=3",
                             "max_steps=7",
                             "global_batch_size=4",
                             "learning_rate=0.001",
                             "warmup_ratio=0"};
  const TrainSummary summary = fixture.run_here("run", options);
  const std::vector<OrderedJson> rows = rows_in_order(fixture / "run" / "metrics.jsonl");
  REQUIRE(rows.size() == 10);
  std::vector<std::pair<bool, int>> order;  // whether it is an evaluation, step
  for (const OrderedJson& row : rows) {
    const bool evaluation = row.contains("eval_loss");
    CHECK(keys_of(row) == (evaluation ? eval_fields : step_fields));
    order.emplace_back(evaluation, row.at("step").get<int>());
  }
  CHECK(order == std::vector<std::pair<bool, int>>{{false, 1},
                                                   {false, 2},
                                                   {false, 3},
                                                   {true, 3},
                                                   {false, 4},
                                                   {false, 5},
                                                   {false, 6},
                                                   {true, 6},
                                                   {false, 7},
                                                   {true, 7}});

  const test::MetricsRows metrics = fixture.metrics("run");
  double flops_over_peak = 0;
  std::int64_t memory = 0;
  for (const Json& step : metrics.steps) {
    const auto value = [&step](const char* field) { return step.at(field).get<double>(); };
    INFO(step.dump());
    CHECK(value("epoch") == value("step") / 4);  // 16 rows in batches of 4
    CHECK(value("loss") > 0);
    CHECK(value("grad_norm") > 0);
    CHECK(value("learning_rate") ==
          Approx(0.001 * 0.5 * (1 + std::cos(std::numbers::pi * (value("step") - 1) / 7))).epsilon(1e-12));
    CHECK(step.at("tokens") == 48);
    CHECK(step.at("trained_tokens") == 24);
    CHECK(value("step_seconds") > 0);
    CHECK(value("tokens_per_second") == Approx(48 / value("step_seconds")));
    CHECK(value("trained_tokens_per_second") == Approx(24 / value("step_seconds")));
    if (flops_over_peak == 0) flops_over_peak = value("mfu") * value("step_seconds");
    CHECK(flops_over_peak > 0);
    CHECK(value("mfu") * value("step_seconds") == Approx(flops_over_peak));  // all steps have the same shape
    CHECK(step.at("peak_memory_bytes").get<std::int64_t>() >= std::max<std::int64_t>(memory, 1 << 20));
    memory = step.at("peak_memory_bytes").get<std::int64_t>();
    CHECK(step.at("peak_device_memory_bytes").get<std::int64_t>() >= memory);  // the same, on a CPU
    CHECK((value("eta_seconds") > 0) == (value("step") < 7));
    CHECK(step.at("skipped_steps") == 0);
  }
  CHECK(summary.steps == 7);
  CHECK(summary.tokens == 7 * 48);
  CHECK(summary.final_loss == metrics.steps.back().at("loss").get<double>());

  for (const Json& evaluation : metrics.evaluations) {
    const double loss = evaluation.at("eval_loss").get<double>();
    CHECK(evaluation.at("eval_perplexity").get<double>() == Approx(std::exp(loss)).epsilon(1e-12));
    CHECK(evaluation.at("eval_tokens") == 4 * 6);
    CHECK(evaluation.at("epoch") == evaluation.at("step").get<double>() / 4);
    CHECK(evaluation.at("eval_seconds").get<double>() > 0);
  }
  CHECK(metrics.evaluations.front().at("eval_loss") != metrics.evaluations.back().at("eval_loss"));
  CHECK(summary.eval_loss == metrics.evaluations.back().at("eval_loss").get<double>());
}

TEST_CASE("run.log and standard error hold the report of the start and a line every logging_steps", "[output]") {
  test::TrainingFixture fixture;
  const auto result = fixture.run("run", {"dataset=" + fixture.write("rows.jsonl", equal_rows()).string(), "val_size=4",
                                          "max_steps=7", "global_batch_size=4", "logging_steps=3", "seed=7"});
  REQUIRE(result.exit_code == 0);
  const std::string log = read_file(fixture / "run" / "run.log");
  for (const std::string& text : {log, result.errors}) {
    INFO(text);
    for (const char* part :
         {"tokenized 20 rows", "ranks: 1 (data parallel 1 x context parallel 1)", "device: ", "20,288 parameters",
          "data: kept 20 of 20 rows", "16 samples, 192 tokens, 96 of them trained",
          "rows.jsonl:", "12 tokens, the 6 trained ones between", "evaluation data: 4 samples, 48 tokens",
          "plan: 7 steps of 4 sequences (4 per epoch), policy skrull", "learning rate: cosine",
          "planned memory of a rank:", "gradients", "optimizer state", "activations", "eval after step 7",
          "saved the model to "}) {
      INFO(part);
      CHECK(test::contains(text, part));
    }
    for (int step = 1; step <= 7; ++step) {
      INFO("step " << step);
      const bool shown = step == 1 || step == 3 || step == 6 || step == 7;
      CHECK(test::contains(text, fmt::format("step {}/7 | epoch ", step)) == shown);
    }
  }
  // The one line of standard output is the result.
  CHECK(std::count(result.output.begin(), result.output.end(), '\n') == 1);
  const Json summary = test::result_of(result);
  CHECK(summary.at("output_dir") == (fixture / "run").string());
  CHECK(summary.at("steps") == 7);
  CHECK(summary.at("skipped_steps") == 0);
  CHECK(summary.at("loss") == fixture.metrics("run").steps.back().at("loss"));
  CHECK(summary.at("eval_loss") == fixture.metrics("run").evaluations.back().at("eval_loss"));
}

TEST_CASE("evaluation data of its own is reported with the rows that were left out", "[output]") {
  test::TrainingFixture fixture;
  const auto data = fixture.write("rows.jsonl", equal_rows());
  const auto held_out = fixture.write(
      "held_out.jsonl", std::string("{\"input_ids\": [5, 6, 7]}\n{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, "
                                    "4]}\n{\"input_ids\": [5, 6], \"labels\": [-100, -100], \"note\": 1}\n"));
  const auto result = fixture.run(
      "run", {"dataset=" + data.string(), "eval_dataset=" + held_out.string(), "cutoff_len=12", "max_steps=1"});
  INFO(result.errors);
  REQUIRE(result.exit_code == 0);
  CHECK(test::contains(result.errors, "evaluation data: kept 1 of 3 rows: 1 dropped as longer than cutoff_len 12"));
  CHECK(test::contains(result.errors, "held_out.jsonl:2)"));
  CHECK(test::contains(result.errors, "1 dropped without a token to train on"));
  CHECK(test::contains(result.errors, "held_out.jsonl:3)"));
  CHECK(test::contains(result.errors, "the column \"note\" of 1 rows is not used"));
  CHECK(test::contains(result.errors, "evaluation data: 1 samples, 3 tokens, 2 of them trained"));
  CHECK(fixture.metrics("run").evaluations.at(0).at("eval_tokens") == 2);
}

TEST_CASE("checkpoints are whole models of their step; a limit removes the oldest, never the newest", "[output]") {
  test::TrainingFixture fixture;
  const Overrides options = {"dataset=" + fixture.write("rows.jsonl", test::random_rows(22, 12, 20, 97)).string(),
                             "lr_scheduler_type=constant", "learning_rate=0.01", "global_batch_size=4"};
  fixture.run_here("all", joined(options, {"max_steps=5", "save_steps=1"}));
  CHECK(entries_of(fixture / "all") == with_checkpoints(run_files, {1, 2, 3, 4}));
  fixture.run_here("two", joined(options, {"max_steps=5", "save_steps=1", "save_total_limit=2"}));
  CHECK(entries_of(fixture / "two") == with_checkpoints(run_files, {3, 4}));
  fixture.run_here("one", joined(options, {"max_steps=19", "save_steps=9", "save_total_limit=1"}));
  CHECK(entries_of(fixture / "one") == with_checkpoints(run_files, {18}));  // newer than 9
  const auto ranks = fixture.run("sparse", joined(options, {"max_steps=5", "save_steps=2"}), 2);
  REQUIRE(ranks.exit_code == 0);
  CHECK(entries_of(fixture / "sparse") == with_checkpoints(run_files, {2, 4}));
  CHECK(test::contains(ranks.errors, "saved " + (fixture / "sparse" / "checkpoint-2").string()));

  std::set<std::string> different;
  for (const int step : {1, 2, 3, 4}) {
    const fs::path checkpoint = fixture / "all" / fmt::format("checkpoint-{}", step);
    CHECK(entries_of(checkpoint) == checkpoint_files);
    different.insert(read_file(checkpoint / "model.safetensors"));
  }
  different.insert(read_file(fixture / "all" / "model.safetensors"));
  CHECK(different.size() == 5);
  fixture.run_here("stopped", joined(options, {"max_steps=2"}));
  CHECK(read_file(fixture / "stopped" / "model.safetensors") ==
        read_file(fixture / "all" / "checkpoint-2" / "model.safetensors"));

  // A second run in the same place leaves nothing of the first, and nothing that is not its own is touched.
  fixture.write("two/notes.txt", std::string("mine"));
  fixture.run_here("two",
                   joined(options, {"max_steps=2", "save_steps=1", "save_total_limit=2", "overwrite_output_dir=true"}));
  std::set<std::string> expected = with_checkpoints(run_files, {1});
  expected.insert("notes.txt");
  CHECK(entries_of(fixture / "two") == expected);
  CHECK(fixture.metrics("two").steps.size() == 2);
}

TEST_CASE("one, two and three ranks report the same losses", "[output]") {
  test::TrainingFixture fixture;
  const Overrides options = {"dataset=" + fixture.write("rows.jsonl", test::random_rows(23, 17, 30, 97)).string(),
                             "val_size=4",
                             "eval_steps=1",
                             "max_steps=4",
                             "global_batch_size=5",
                             "learning_rate=0.01"};
  std::vector<test::MetricsRows> metrics;
  for (const int ranks : {1, 2, 3}) {
    const std::string output = fmt::format("ranks-{}", ranks);
    const auto result = fixture.run(output, options, ranks);
    INFO(result.errors);
    REQUIRE(result.exit_code == 0);
    CHECK(entries_of(fixture / output) == run_files);
    metrics.push_back(fixture.metrics(output));
    REQUIRE(metrics.back().steps.size() == 4);
    REQUIRE(metrics.back().evaluations.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      for (const char* field : {"loss", "grad_norm"}) {
        CHECK(metrics.back().of_steps(field)[i] == Approx(metrics.front().of_steps(field)[i]).epsilon(1e-5));
      }
      const Json& evaluation = metrics.back().evaluations[i];
      const Json& expected = metrics.front().evaluations[i];
      CHECK(evaluation.at("eval_loss").get<double>() == Approx(expected.at("eval_loss").get<double>()).epsilon(1e-5));
      CHECK(evaluation.at("eval_tokens") == expected.at("eval_tokens"));
    }
  }
}

TEST_CASE("the final folder is a model like the one that came in", "[output]") {
  test::TrainingFixture fixture;
  const auto data = fixture.write("rows.jsonl", test::random_rows(24, 8, 20, 97));
  const Overrides options = {"dataset=" + data.string(), "eval_dataset=" + data.string(), "max_steps=2",
                             "learning_rate=0.01", "warmup_ratio=0"};
  const auto layout_of = [](const fs::path& folder) {
    std::vector<std::tuple<std::string, DType, std::vector<std::int64_t>>> layout;
    const SafetensorsReader reader(folder);
    for (const StoredTensor& tensor : reader.tensors()) layout.emplace_back(tensor.name, tensor.dtype, tensor.shape);
    return layout;
  };
  for (const std::string name : {"tied_mha_d16", "tied_mha_d16_bf16"}) {
    INFO(name);
    const fs::path source = test::tiny_model(name);
    fixture.run_here(name, joined(options, {"model_name_or_path=" + source.string()}));
    CHECK(layout_of(fixture / name) == layout_of(source));
    CHECK(fs::file_size(fixture / name / "model.safetensors") == fs::file_size(source / "model.safetensors"));
    CHECK(read_file(fixture / name / "generation_config.json") == read_file(source / "generation_config.json"));
    CHECK(read_json_file(fixture / name / "config.json") == read_json_file(source / "config.json"));
    CHECK(read_file(fixture / name / "model.safetensors") != read_file(source / "model.safetensors"));
  }
  // The saved model is the one that was evaluated last.
  const double expected = fixture.metrics("tied_mha_d16").evaluations.back().at("eval_loss").get<double>();
  const EvalResult saved =
      fixture.evaluate_here({"dataset=" + data.string(), "model_name_or_path=" + (fixture / "tied_mha_d16").string()});
  CHECK(saved.loss == Approx(expected).epsilon(1e-6));
  CHECK(saved.loss < 0.99 * fixture.evaluate_here({"dataset=" + data.string()}).loss);
}
