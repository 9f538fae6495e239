// A loss or gradient norm that is not finite: the step changes nothing, is counted, and the third in a row ends the
// run.
#include <cmath>
#include <limits>

#include "edited_models.h"
#include "loaded_training.h"
#include "skrull/core/file.h"
#include "skrull/train/step.h"
#include "support/catch.h"

using namespace skrull;
using test::joined;
using test::ModelTensors;
using test::Overrides;
using test::TokenRow;
namespace fs = std::filesystem;

namespace {

/// The token that breaks the model of break_on_token(), and its own dimension of the hidden state.
constexpr std::int32_t bad_token = 96;
constexpr std::int64_t own_dimension = 31;

/// Nothing but an embedding writes to one dimension of the hidden state, and no token's but bad_token's does.
void isolate_dimension(ModelTensors& tensors) {
  for (auto& [name, tensor] : tensors) {
    if (test::contains(name, "o_proj.weight") || test::contains(name, "down_proj.weight")) {
      test::set_row(tensor, own_dimension, 0.0F);
    }
  }
  test::set_column(tensors.at("model.embed_tokens.weight"), own_dimension, 0.0F);
}

/// All weights are finite, and rows with bad_token have no finite loss: its MLP multiplies 1e30 by 1e30.
void break_on_token(ModelTensors& tensors) {
  isolate_dimension(tensors);
  test::element(tensors.at("model.embed_tokens.weight"), bad_token, own_dimension) = 1.0F;
  test::element(tensors.at("model.layers.0.mlp.gate_proj.weight"), 0, own_dimension) = 1e30F;
  test::element(tensors.at("model.layers.0.mlp.up_proj.weight"), 0, own_dimension) = 1e30F;
}

/// The loss of a row that is trained on `label` alone is finite, its gradient is not: the head's weights for a
/// dimension that is 0 are as large as floats get, so that their gradients' sum overflows.
void break_backward(ModelTensors& tensors, std::int32_t label) {
  isolate_dimension(tensors);
  constexpr float large = std::numeric_limits<float>::max();
  test::set_column(tensors.at("lm_head.weight"), own_dimension, large);
  test::element(tensors.at("lm_head.weight"), label, own_dimension) = -large;
}

const TokenRow good_row = {{5, 6, 7, 8, 9}};
const TokenRow other_good_row = {{11, 3, 50, 2}};
const TokenRow bad_row = {{5, bad_token, 7, 8}};

struct Fixture : test::TrainingFixture {
  /// Options for a run of one row a step on an edited model.
  Overrides options(const std::string& model, const std::function<void(ModelTensors&)>& edit,
                    const std::vector<TokenRow>& rows) {
    test::write_edited_model(*this / model, test::tiny_model(test::editable_model), edit);
    return {"model_name_or_path=" + (*this / model).string(),
            "dataset=" + write("rows.jsonl", rows).string(),
            "data_order=sequential",
            "global_batch_size=1",
            "num_train_epochs=1",
            "lr_scheduler_type=constant"};
  }
};

bool has_checkpoint_or_model(const fs::path& output) {
  for (const auto& entry : fs::directory_iterator(output)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("checkpoint-") || name.starts_with("model") || name.starts_with(".saving")) return true;
  }
  return false;
}

/// What a step may change: parameters, both moments, the number of updates.
struct TrainingState {
  std::vector<float> values;
  std::int64_t updates = 0;
  bool operator==(const TrainingState&) const = default;
};

TrainingState state_of(TrainableParameters& parameters) {
  TrainingState state;
  state.updates = parameters.updates();
  for (int block = 0; block < parameters.table().block_count(); ++block) {
    const OwnedState owned = parameters.owned(block);
    for (const TensorView& view : {owned.parameter, owned.first_moment, owned.second_moment}) {
      state.values.insert(state.values.end(), view.as<float>(), view.as<float>() + owned.part.count);
    }
  }
  return state;
}

}  // namespace

TEST_CASE("a step without a finite loss leaves parameters, moments and Adam's step as they were", "[non_finite]") {
  Fixture fixture;
  // Not even finite, but nothing is saved here, and rows without the token are never touched by it.
  const auto infinite_token = [](ModelTensors& tensors) {
    test::set_row(tensors.at("model.embed_tokens.weight"), bad_token, std::numeric_limits<float>::infinity());
  };
  const Overrides options = fixture.options("breaking", infinite_token, {good_row, bad_row, other_good_row});
  const auto train = [&](const std::vector<std::int64_t>& samples) {
    test::LoadedTraining run(fixture.config("run", options), 10, fixture / "cache");
    REQUIRE(run.store->size() == 3);
    std::vector<TrainingState> states;
    for (const std::int64_t sample : samples) {
      const StepOutcome outcome =
          run_step(test::one_rank_step(*run.store, {sample}, 10), run.config, 1e-3, run.model, run.state.parameters(),
                   run.attention, run.rank.device(), run.rank.control());
      CHECK(outcome.updated == (sample != 1));
      CHECK(std::isfinite(outcome.loss) == (sample != 1));
      states.push_back(state_of(run.state.parameters()));
    }
    return states;
  };
  const std::vector<TrainingState> with_bad = train({0, 1, 1, 2});
  CHECK(with_bad[0].updates == 1);
  CHECK(with_bad[1] == with_bad[0]);
  CHECK(with_bad[2] == with_bad[0]);
  CHECK(with_bad[3].updates == 2);
  CHECK(with_bad[3] == train({0, 2}).back());
}

TEST_CASE("a finite loss with a gradient that is not finite is no update either", "[non_finite]") {
  Fixture fixture;
  const TokenRow row = {{5, 7}};
  const Overrides options =
      fixture.options("breaking", [](ModelTensors& tensors) { break_backward(tensors, 7); }, {row});
  test::LoadedTraining run(fixture.config("run", options), 2, fixture / "cache");
  const TrainingState before = state_of(run.state.parameters());
  const StepOutcome outcome = run_step(test::one_rank_step(*run.store, {0}, 2), run.config, 1e-3, run.model,
                                       run.state.parameters(), run.attention, run.rank.device(), run.rank.control());
  CHECK(std::isfinite(outcome.loss));
  CHECK_FALSE(std::isfinite(outcome.grad_norm));
  CHECK_FALSE(outcome.updated);
  CHECK(state_of(run.state.parameters()) == before);
  CHECK(before.updates == 0);

  const auto result = fixture.run("out", joined(options, {"max_steps=5"}));
  CHECK(result.exit_code == 1);
  const test::MetricsRows metrics = fixture.metrics("out");
  REQUIRE(metrics.steps.size() == 3);
  CHECK(metrics.steps[0].at("loss").is_number());
  CHECK(metrics.steps[0].at("grad_norm").is_null());
}

TEST_CASE("skipped steps are logged and counted; fewer than three in a row do not end a run", "[non_finite]") {
  Fixture fixture;
  const Overrides options = joined(
      fixture.options("breaking", break_on_token, {good_row, bad_row, other_good_row, bad_row, bad_row, good_row}),
      {"learning_rate=0"});
  for (const int ranks : {0, 2}) {
    const std::string output = fmt::format("ranks-{}", ranks);
    const auto result = fixture.run(output, options, ranks);
    INFO(result.errors);
    const Json summary = test::result_of(result);
    CHECK(summary.at("steps") == 6);
    CHECK(summary.at("skipped_steps") == 3);
    const test::MetricsRows metrics = fixture.metrics(output);
    CHECK(metrics.of_steps("skipped_steps") == std::vector<double>{0, 1, 1, 2, 3, 3});
    for (const Json& step : metrics.steps) {
      const int number = step.at("step").get<int>();
      const bool bad = number == 2 || number == 4 || number == 5;
      CHECK(step.at("loss").is_null() == bad);
      CHECK(step.at("grad_norm").is_null() == bad);
      const std::string warning = fmt::format("step {}: loss ", number);
      for (const std::string& text : {result.errors, read_file(fixture / output / "run.log")}) {
        CHECK(test::contains(text, warning) == bad);
        CHECK(test::contains(text, "the step was skipped, parameters are unchanged"));
      }
    }
    CHECK(summary.at("loss") == metrics.steps.back().at("loss"));
    CHECK(read_file(fixture / output / "model.safetensors") == read_file(fixture / "breaking" / "model.safetensors"));
  }
}

TEST_CASE("the third step in a row that is not finite ends the run with code 1 and no model", "[non_finite]") {
  Fixture fixture;
  const Overrides options = joined(fixture.options("breaking", break_on_token, {good_row, bad_row, bad_row, bad_row}),
                                   {"learning_rate=0.001", "save_steps=1", "save_total_limit=1", "max_steps=40"});
  for (const int ranks : {0, 3}) {
    const std::string output = fmt::format("ranks-{}", ranks);
    const auto result = fixture.run(output, options, ranks);
    INFO(result.errors);
    CHECK(result.exit_code == 1);
    CHECK(result.output.empty());
    CHECK(test::contains(result.errors,
                         "error: step 4: 3 steps in a row had a non-finite loss or gradient norm; the "
                         "parameters are those of step 1"));
    CHECK_FALSE(test::contains(result.errors, "MPI_ABORT"));
    CHECK(test::contains(read_file(fixture / output / "run.log"), "step 4: 3 steps in a row"));
    CHECK(fixture.metrics(output).of_steps("skipped_steps") == std::vector<double>{0, 1, 2, 3});
    CHECK_FALSE(fs::exists(fixture / output / "model.safetensors"));
    // Checkpoints of skipped steps hold the parameters of the last good one.
    fixture.run_here("good", joined(options, {"max_steps=1", "overwrite_output_dir=true"}));
    const auto weights = test::read_weights(fixture / output / "checkpoint-3");
    CHECK(test::largest_relative_difference(weights, test::read_weights(fixture / "good")) < 1e-5);
  }
  const auto patient = fixture.run("patient", joined(options, {"max_skipped_steps=1"}));
  CHECK(patient.exit_code == 1);
  CHECK(fixture.metrics("patient").steps.size() == 2);
}

TEST_CASE("a run in which no step could update has no loss to report", "[non_finite]") {
  Fixture fixture;
  const auto result = fixture.run("out", fixture.options("breaking", break_on_token, {bad_row, bad_row}));
  const Json summary = test::result_of(result);
  CHECK(summary.at("skipped_steps") == 2);
  CHECK(summary.at("loss").is_null());
}

TEST_CASE("a model that began with weights that are not finite is never saved", "[non_finite]") {
  Fixture fixture;
  const Overrides options = fixture.options(
      "infinite",
      [](ModelTensors& tensors) { tensors.at("model.norm.weight").values[3] = std::numeric_limits<float>::infinity(); },
      {good_row, good_row, good_row, good_row, good_row});
  const auto stopped = fixture.run("stopped", options);
  CHECK(stopped.exit_code == 1);
  CHECK(fixture.metrics("stopped").of_steps("skipped_steps") == std::vector<double>{1, 2, 3});
  CHECK_FALSE(has_checkpoint_or_model(fixture / "stopped"));

  for (const int ranks : {0, 2}) {
    const std::string output = fmt::format("saving-{}", ranks);
    const auto saving = fixture.run(output, joined(options, {"save_steps=1"}), ranks);
    INFO(saving.errors);
    CHECK(saving.exit_code == 1);
    CHECK(test::contains(saving.errors, "model.norm.weight: element 3 is inf, no finite float32 number"));
    CHECK(fixture.metrics(output).steps.size() == 1);
    CHECK_FALSE(has_checkpoint_or_model(fixture / output));
  }
}

TEST_CASE("an update that makes weights infinite is not saved, and the last good checkpoint stays", "[non_finite]") {
  Fixture fixture;
  // The first step's learning rate is 0, the second's more than floats hold.
  const Overrides options = joined(fixture.options(
                                       "model", [](ModelTensors&) {}, std::vector<TokenRow>(6, good_row)),
                                   {"lr_scheduler_type=constant_with_warmup", "warmup_steps=1", "learning_rate=1e39",
                                    "save_steps=1", "save_total_limit=1"});
  const auto result = fixture.run("out", options);
  INFO(result.errors);
  CHECK(result.exit_code == 1);
  CHECK(test::contains(result.errors, "the model was not saved, earlier checkpoints stay"));
  CHECK(fixture.metrics("out").steps.size() == 2);
  CHECK(read_file(fixture / "out" / "checkpoint-1" / "model.safetensors") ==
        read_file(fixture / "model" / "model.safetensors"));
  CHECK_FALSE(fs::exists(fixture / "out" / "checkpoint-2"));
  CHECK_FALSE(fs::exists(fixture / "out" / "model.safetensors"));
}
