// A run that continues: bit for bit where nothing changed, within rounding on other layouts, and not at all on other
// data.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "launched_run.h"
#include "skrull/core/file.h"
#include "skrull/train/checkpoint.h"
#include "skrull/train/trainer_state.h"
#include "support/catch.h"
#include "training_fixture.h"

using namespace skrull;
using test::contains;
using test::joined;
using test::Overrides;
namespace fs = std::filesystem;

namespace {

/// 19 training rows: 3 epochs of 8 + 8 + 3 sequences, three evaluation rows.
struct Fixture : test::TrainingFixture {
  Overrides options = {"dataset=" + write("rows.jsonl", test::random_rows(71, 22, 40, 97)).string(),
                       "val_size=3",
                       "eval_steps=2",
                       "learning_rate=0.002",
                       "weight_decay=0.1",
                       "num_train_epochs=3",
                       "global_batch_size=8",
                       "bucket_tokens=64"};

  /// A copy of the run `source` as it stood when checkpoint-<step> was complete, and killed some steps later.
  void copy_killed_after(const std::string& source, std::int64_t step, const std::string& target) const {
    fs::remove_all(*this / target);
    fs::copy(*this / source, *this / target, fs::copy_options::recursive);
    for (const char* late : {"model.safetensors", "config.json", "generation_config.json", "trainer_state.json"}) {
      fs::remove(*this / target / late);
    }
    for (std::int64_t later = step + 1; later < 20; ++later) {
      fs::remove_all(*this / target / fmt::format("checkpoint-{}", later));
    }
    fs::create_directories(*this / target / fmt::format(".saving-checkpoint-{}", step + 1));
  }

  std::string weights(const std::string& output) const { return read_file(*this / output / "model.safetensors"); }
};

Overrides resumed(const Overrides& options, const Overrides& more = {}) {
  return joined(joined(options, {"resume_from_checkpoint=auto"}), more);
}

void flip_bit(const fs::path& file, std::size_t offset) {
  std::string content = read_file(file);
  content.at(offset) = static_cast<char>(content.at(offset) ^ 4);
  std::ofstream(file, std::ios::binary) << content;
}

}  // namespace

TEST_CASE("a resumed run ends with the bits of an uninterrupted one", "[resume]") {
  Fixture fixture;
  // Masters in the model's own file, on one rank; beside it, on two.
  const int ranks = GENERATE(0, 2);
  INFO("ranks " << ranks);
  const Overrides options = joined(fixture.options, {ranks == 0 ? "save_dtype=float32" : "save_dtype=bfloat16"});
  REQUIRE(fixture.run("whole", options, ranks).exit_code == 0);
  REQUIRE(fixture.run("saving", joined(options, {"save_steps=1"}), ranks).exit_code == 0);
  REQUIRE(fixture.weights("saving") == fixture.weights("whole"));
  const test::MetricsRows expected = fixture.metrics("whole");
  REQUIRE(expected.steps.size() == 9);
  // In each epoch, just before the end.
  for (const std::int64_t step : ranks == 0 ? std::vector<std::int64_t>{1, 4, 7, 8} : std::vector<std::int64_t>{4, 8}) {
    INFO("after step " << step);
    fixture.copy_killed_after("saving", step, "resumed");
    const auto result = fixture.run("resumed", resumed(options), ranks);
    INFO(result.errors);
    REQUIRE(result.exit_code == 0);
    CHECK(contains(result.errors, fmt::format("continuing after step {} of 9", step)));
    CHECK(fixture.weights("resumed") == fixture.weights("whole"));
    CHECK(fixture.metrics("resumed").without_measurements() == expected.without_measurements());
    CHECK_FALSE(fs::exists(fixture / "resumed" / fmt::format(".saving-checkpoint-{}", step + 1)));
    CHECK(test::result_of(result).at("tokens") == read_trainer_state(fixture / "whole" / "trainer_state.json").tokens);
  }
}

TEST_CASE("killed in the middle of a save, a run continues at the checkpoint before", "[resume]") {
  Fixture fixture;
  const Overrides options = resumed(joined(fixture.options, {"lr_scheduler_type=constant", "val_size=0", "eval_steps=0",
                                                             "save_steps=1", "save_total_limit=2"}));
  const auto unfinished = [&] {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(fixture / "run")) {
      if (entry.path().filename().string().starts_with(".saving-checkpoint-")) found.push_back(entry.path());
    }
    return found;
  };
  bool caught = false;
  for (int attempt = 0; attempt < 10 && !caught; ++attempt) {
    fs::remove_all(fixture / "run");
    test::LaunchedRun run(fixture / "", 2, fixture.arguments("train", "run", joined(options, {"max_steps=1000000"})));
    test::wait_until([&] { return test::is_training(fixture / "run"); });
    while (unfinished().empty()) std::this_thread::yield();
    run.send(attempt % 2, SIGKILL);
    CHECK(run.wait().exit_code == 128 + 9);
    caught = !unfinished().empty();
  }
  REQUIRE(caught);
  CHECK(test::run_skrull({"inspect", (fixture / "run").string()}).exit_code == 0);
  const std::string length = fmt::format("max_steps={}", fixture.metrics("run").steps.size() + 2);
  const auto result = fixture.run("run", joined(options, {length}), 2);
  INFO(result.errors);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.errors, "continuing after step "));
  CHECK(unfinished().empty());
  REQUIRE(fixture.run("whole", joined(options, {length, "save_steps=0"}), 2).exit_code == 0);
  CHECK(fixture.weights("run") == fixture.weights("whole"));
  CHECK(fixture.metrics("run").without_measurements() == fixture.metrics("whole").without_measurements());
}

TEST_CASE("a checkpoint of four ranks, context parallelism 2 and ZeRO 3, continues on any layout", "[resume]") {
  Fixture fixture;
  const Overrides options = joined(fixture.options, {"save_dtype=bfloat16"});
  const Overrides saving = {"save_steps=4", "context_parallel_size=2", "zero_stage=3", "bucket_tokens=48"};
  REQUIRE(fixture.run("saving", joined(options, saving), 4).exit_code == 0);
  struct Layout {
    int ranks;
    Overrides options;
  };
  const std::vector<Layout> layouts = {
      {0, {}},
      {1, {"bucket_tokens=40", "gradient_checkpointing=full"}},
      {3, {"zero_stage=0", "reduce_gradients=step"}},
      {3, {"zero_stage=0", "offload_optimizer=cpu"}},
      {2, {"zero_stage=1", "context_parallel_size=2", "scheduler.policy=packed", "bucket_tokens=48"}}};
  for (const Layout& layout : layouts) {
    INFO(layout.ranks << " ranks");
    fixture.copy_killed_after("saving", 4, "resumed");
    const auto result = fixture.run("resumed", resumed(options, layout.options), layout.ranks);
    INFO(result.errors);
    REQUIRE(result.exit_code == 0);
    test::check_same(fixture.metrics("resumed").of_steps("loss"), fixture.metrics("saving").of_steps("loss"), 1e-5);
    test::check_same(fixture.metrics("resumed").of_steps("grad_norm"), fixture.metrics("saving").of_steps("grad_norm"),
                     1e-5);
    CHECK(fixture.metrics("resumed").of_steps("tokens") == fixture.metrics("saving").of_steps("tokens"));
    CHECK(fixture.metrics("resumed").of_steps("learning_rate") == fixture.metrics("saving").of_steps("learning_rate"));
  }
}

TEST_CASE("the batch of a step stays that of the checkpoint on another number of ranks", "[resume]") {
  Fixture fixture;
  const Overrides options = joined(
      fixture.options, {"global_batch_size=null", "per_device_train_batch_size=2", "gradient_accumulation_steps=2"});
  REQUIRE(fixture.run("saving", joined(options, {"save_steps=4"}), 2).exit_code == 0);
  fixture.copy_killed_after("saving", 4, "resumed");
  REQUIRE(fixture.run("resumed", resumed(options), 3).exit_code == 0);
  CHECK(fixture.metrics("resumed").of_steps("tokens") == fixture.metrics("saving").of_steps("tokens"));
  test::check_same(fixture.metrics("resumed").of_steps("loss"), fixture.metrics("saving").of_steps("loss"), 1e-5);

  fixture.copy_killed_after("saving", 4, "resumed");
  const auto changed = fixture.run("resumed", resumed(options, {"gradient_accumulation_steps=1"}), 2);
  CHECK(changed.exit_code == 2);
  CHECK(contains(changed.errors, "it was saved with 8 sequences per step, now there would be 4"));
}

TEST_CASE("a run does not continue on other data, another model or under another seed", "[resume]") {
  Fixture fixture;
  fixture.run_here("saving", joined(fixture.options, {"save_steps=4"}));
  fixture.copy_killed_after("saving", 4, "run");
  const std::string before = read_file(fixture / "run" / "metrics.jsonl");
  const auto other_rows = fixture.write("other.jsonl", test::random_rows(72, 22, 40, 97));
  const std::string cases[][2] = {
      {"seed=7", "it was saved with seed 42, now it is 7"},
      {"data_order=sequential", "it was saved with data_order \"shuffled\", now it is \"sequential\""},
      {"cutoff_len=100", "it was saved with cutoff_len 32768, now it is 100"},
      {"val_size=4", "it was saved with val_size 3, now it is 4"},
      {"loss_reduction=sequence_mean", "it was saved with loss_reduction \"token_mean\", now it is"},
      {"global_batch_size=4", "it was saved with 8 sequences per step, now there would be 4"},
      {"dataset=" + other_rows.string(), "it was saved while training on other data"},
      {"model_name_or_path=" + test::tiny_model("untied_gqa4_d16"), "it was saved from a model with "},
      {"max_steps=3", "it was saved after step 4, the run has 3 steps"},
  };
  for (const auto& [change, reason] : cases) {
    const auto failure =
        test::failure_of([&, &change = change] { fixture.run_here("run", resumed(fixture.options, {change})); });
    INFO(change << ": " << failure.message);
    CHECK(failure.exit_code == 2);
    CHECK(contains(failure.message, (fixture / "run" / "checkpoint-4").string()));
    CHECK(contains(failure.message, reason));
  }
  CHECK(read_file(fixture / "run" / "metrics.jsonl") == before);
  CHECK(fs::exists(fixture / "run" / "checkpoint-4" / manifest_file));

  // The same rows elsewhere, and what changes neither data nor loss.
  fs::copy(fixture / "rows.jsonl", fixture / "moved.jsonl");
  const TrainSummary summary =
      fixture.run_here("run", resumed(fixture.options, {"dataset=" + (fixture / "moved.jsonl").string(),
                                                        "learning_rate=0.001", "logging_steps=1", "max_steps=6"}));
  CHECK(summary.steps == 6);
  CHECK(fixture.metrics("run").steps.size() == 6);
}

TEST_CASE("auto without a checkpoint starts fresh, also where a killed run left its files", "[resume]") {
  Fixture fixture;
  const Overrides options = resumed(joined(fixture.options, {"max_steps=2"}));
  fixture.run_here("empty", options);
  CHECK(fixture.metrics("empty").steps.size() == 2);

  fixture.copy_killed_after("empty", 0, "killed");
  fixture.write("killed/args.json.partial", std::string("{"));
  fixture.write("killed/.saving-checkpoint-2/model.safetensors", std::string("half"));
  fixture.run_here("killed", options);
  CHECK(fixture.metrics("killed").without_measurements() == fixture.metrics("empty").without_measurements());
  CHECK(fixture.weights("killed") == fixture.weights("empty"));
  CHECK_FALSE(fs::exists(fixture / "killed" / ".saving-checkpoint-2"));

  // Somebody else's files are no run.
  fixture.write("foreign/model.safetensors", std::string("mine"));
  const auto failure = test::failure_of([&] { fixture.run_here("foreign", options); });
  CHECK(failure.exit_code == 2);
  CHECK(contains(failure.message, "is not empty (it holds model.safetensors)"));
  CHECK(fixture.weights("foreign") == "mine");
}

TEST_CASE("a finished run has nothing to do; with more steps it goes on at its newest checkpoint", "[resume]") {
  Fixture fixture;
  const Overrides options = joined(fixture.options, {"lr_scheduler_type=constant", "save_steps=4"});
  const TrainSummary first = fixture.run_here("run", options);
  const std::string model = fixture.weights("run");
  const std::string metrics = read_file(fixture / "run" / "metrics.jsonl");
  const auto again = fixture.run("run", resumed(options), 2);
  INFO(again.errors);
  REQUIRE(again.exit_code == 0);
  CHECK(contains(again.errors, "is finished: 9 of 9 steps; nothing to do"));
  CHECK(test::result_of(again).at("loss") == first.final_loss);
  CHECK(test::result_of(again).at("eval_loss") == first.eval_loss);
  CHECK(fixture.weights("run") == model);
  CHECK(read_file(fixture / "run" / "metrics.jsonl") == metrics);

  fixture.run_here("longer", joined(options, {"num_train_epochs=4"}));
  fixture.run_here("run", resumed(options, {"num_train_epochs=4"}));
  CHECK(fixture.weights("run") == fixture.weights("longer"));
  CHECK(fixture.metrics("run").without_measurements() == fixture.metrics("longer").without_measurements());
  CHECK(read_trainer_state(fixture / "run" / "trainer_state.json").step == 12);

  fixture.run_here("bare", joined(fixture.options, {"max_steps=2"}));
  const auto failure =
      test::failure_of([&] { fixture.run_here("bare", resumed(joined(fixture.options, {"max_steps=3"}))); });
  CHECK(failure.exit_code == 2);
  CHECK(contains(failure.message, "is finished with 2 steps and left no checkpoint"));
}

TEST_CASE("a bit flipped in any file of a checkpoint is found, and the one before is used", "[resume]") {
  Fixture fixture;
  fixture.run_here("saving", joined(fixture.options, {"save_steps=2"}));
  for (const char* name : {"model.safetensors", "optimizer-00001-of-00001.safetensors", "config.json",
                           "generation_config.json", "trainer_state.json", "manifest.json"}) {
    INFO(name);
    fixture.copy_killed_after("saving", 6, "damaged");
    const fs::path file = fixture / "damaged" / "checkpoint-6" / name;
    flip_bit(file, fs::file_size(file) / 2);
    const auto inspected = test::run_skrull({"inspect", (fixture / "damaged" / "checkpoint-6").string()});
    CHECK(inspected.exit_code == 1);
    CHECK(contains(inspected.errors, "error: " + file.string()));
    const auto failure = test::failure_of([&] {
      fixture.run_here("damaged", joined(fixture.options, {"resume_from_checkpoint=" + file.parent_path().string()}));
    });
    CHECK(failure.exit_code == 2);
    CHECK(contains(failure.message, file.string()));
    fixture.run_here("damaged", resumed(fixture.options));
    CHECK(fixture.weights("damaged") == fixture.weights("saving"));
    CHECK(fs::exists(fixture / "damaged" / "checkpoint-6.set-aside"));
    CHECK_FALSE(fs::exists(fixture / "damaged" / "checkpoint-6"));
  }
}

TEST_CASE("a file cut short or missing is found; with no valid checkpoint auto starts anew and keeps the damaged one",
          "[resume]") {
  Fixture fixture;
  fixture.run_here("saving", joined(fixture.options, {"save_steps=4"}));
  fixture.copy_killed_after("saving", 4, "damaged");
  const fs::path shard = fixture / "damaged" / "checkpoint-4" / optimizer_shard_name(0, 1);
  fs::resize_file(shard, fs::file_size(shard) - 1);
  const auto cut = test::run_skrull({"inspect", (fixture / "damaged").string(), "--json"});
  CHECK(cut.exit_code == 1);
  CHECK(contains(cut.errors, "bytes, "));
  CHECK(Json::parse(cut.output).at("valid") == false);
  fs::remove(shard);
  CHECK(test::run_skrull({"inspect", (fixture / "damaged").string()}).exit_code == 1);
  const auto result = fixture.run("damaged", resumed(fixture.options));
  INFO(result.errors);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.errors, "warning: " + shard.string() + ": No such file"));
  CHECK(fixture.weights("damaged") == fixture.weights("saving"));
  CHECK(fs::exists(fixture / "damaged" / "checkpoint-4.set-aside" / manifest_file));
}

TEST_CASE("the limit never removes the checkpoint that a run went back to", "[resume]") {
  Fixture fixture;
  fixture.run_here("run", joined(fixture.options, {"save_steps=2"}));
  fixture.copy_killed_after("run", 8, "back");
  const Overrides back = {"resume_from_checkpoint=" + (fixture / "back" / "checkpoint-4").string()};
  fixture.run_here("back", joined(fixture.options, joined(back, {"save_steps=3", "save_total_limit=1"})));
  CHECK(fixture.weights("back") == fixture.weights("run"));
  CHECK(fs::exists(fixture / "back" / "checkpoint-6" / manifest_file));
  for (const int gone : {2, 4, 8}) CHECK_FALSE(fs::exists(fixture / "back" / fmt::format("checkpoint-{}", gone)));

  // A checkpoint of another folder begins a run of its own; that folder stays as it is.
  const Overrides branch = {"resume_from_checkpoint=" + (fixture / "run" / "checkpoint-4").string()};
  fixture.run_here("branch", joined(fixture.options, branch));
  CHECK(fixture.weights("branch") == fixture.weights("run"));
  CHECK(fixture.metrics("branch").steps.size() == 5);
  CHECK(fs::exists(fixture / "run" / "checkpoint-8" / manifest_file));
}

TEST_CASE("checkpoints of the model alone are smaller, load as models, and continue nothing", "[resume]") {
  Fixture fixture;
  fixture.run_here("run", joined(fixture.options, {"save_steps=4", "save_only_model=true"}));
  const fs::path checkpoint = fixture / "run" / "checkpoint-4";
  CHECK_FALSE(fs::exists(checkpoint / optimizer_shard_name(0, 1)));
  CHECK(test::run_skrull({"inspect", checkpoint.string()}).exit_code == 0);
  fixture.copy_killed_after("run", 4, "killed");
  const auto failure = test::failure_of([&] { fixture.run_here("killed", resumed(fixture.options)); });
  CHECK(failure.exit_code == 2);
  CHECK(contains(failure.message, "checkpoint-4: it holds the model alone"));
}

TEST_CASE("skipped steps are remembered: the limit counts them over a restart", "[resume]") {
  TrainerState state;
  state.config = "{}";
  state.skipped_in_a_row = 2;
  state.skipped_steps = 5;
  state.loss = NAN;
  const test::TemporaryFolder folder;
  write_trainer_state(folder / trainer_state_file, state);
  const TrainerState read = read_trainer_state(folder / trainer_state_file);
  CHECK(read.skipped_in_a_row == 2);
  CHECK(read.skipped_steps == 5);
  CHECK(std::isnan(read.loss));
}

TEST_CASE("inspect describes a checkpoint, export makes a plain folder of it", "[resume]") {
  Fixture fixture;
  REQUIRE(fixture.run("run", joined(fixture.options, {"save_steps=4", "save_dtype=bfloat16"}), 3).exit_code == 0);
  const fs::path checkpoint = fixture / "run" / "checkpoint-8";
  const auto inspected = test::run_skrull({"inspect", (fixture / "run").string(), "--json"});
  INFO(inspected.errors);
  REQUIRE(inspected.exit_code == 0);
  const Json report = Json::parse(inspected.output);
  CHECK(report.at("checkpoint") == checkpoint.string());
  CHECK(report.at("step") == 8);
  CHECK(report.at("ranks") == 3);
  CHECK(report.at("dtype") == "bfloat16");
  CHECK(report.at("parameters") == 20288);
  CHECK(report.at("valid") == true);
  CHECK(report.at("files").size() == 7);  // model, two configs, state, three shards

  const auto exported = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"export", checkpoint.string(), "--output", (fixture / name).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = test::run_skrull(arguments);
    INFO(result.errors);
    REQUIRE(result.exit_code == 0);
    return test::read_weights(fixture / name);
  };
  const auto stored = test::read_weights(checkpoint);
  for (const auto& [name, values] : test::read_weights(test::tiny_model())) {
    CHECK(stored.at(name).size() == values.size());
  }
  CHECK(stored.size() == test::read_weights(test::tiny_model()).size());  // the tied head is not written
  CHECK(exported("as_stored", {}) == stored);
  CHECK(read_file(fixture / "as_stored" / "model.safetensors") == read_file(checkpoint / "model.safetensors"));
  CHECK_FALSE(fs::exists(fixture / "as_stored" / manifest_file));
  const auto exact = exported("exact", {"--dtype", "float32", "--shard-size", "20KB"});
  CHECK(fs::exists(fixture / "exact" / "model.safetensors.index.json"));
  CHECK(exact != stored);
  CHECK(test::largest_relative_difference(stored, exact) < 4e-3);  // 8 bits of bfloat16
  const auto again = test::run_skrull({"export", checkpoint.string(), "--output", (fixture / "exact").string()});
  CHECK(again.exit_code == 2);
  CHECK(contains(again.errors, "is not an empty folder"));

  // The masters are what a run of float32 saves.
  REQUIRE(fixture.run("exact_run", joined(fixture.options, {"save_steps=4", "save_dtype=float32"}), 3).exit_code == 0);
  CHECK(exact == test::read_weights(fixture / "exact_run" / "checkpoint-8"));
}
