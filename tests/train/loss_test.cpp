// What a step's loss is the mean of, through the whole trainer: worked examples against losses of single rows.
#include <cmath>

#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "support/catch.h"
#include "training_fixture.h"

using namespace skrull;
using test::Overrides;
using test::TokenRow;

namespace {

/// A row of `length` tokens of which the last `trained` are trained.
TokenRow row_with(std::uint64_t seed, std::int64_t length, std::int64_t trained) {
  TokenRow row = test::random_rows(seed, 1, 2, 97).front();
  while (static_cast<std::int64_t>(row.ids.size()) < length) {
    row.ids.push_back(static_cast<std::int32_t>((row.ids.back() * 31 + static_cast<std::int32_t>(seed) + 7) % 97));
  }
  row.labels = row.ids;
  for (std::int64_t t = 0; t < length - trained; ++t) (*row.labels)[static_cast<std::size_t>(t)] = -100;
  return row;
}

/// Sum of cross-entropies and number of trained tokens of one row, by an evaluation of that row alone.
EvalResult alone(test::TrainingFixture& fixture, const TokenRow& row) {
  return fixture.evaluate_here({"dataset=" + fixture.write("alone.jsonl", std::vector<TokenRow>{row}).string()});
}

Overrides one_step(const std::filesystem::path& dataset, const Overrides& more = {}) {
  Overrides all = {"dataset=" + dataset.string(), "learning_rate=0", "num_train_epochs=1", "data_order=sequential"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("token mean: one long and one short answer weigh by their tokens, however they are laid out", "[loss]") {
  test::TrainingFixture fixture;
  const std::vector<TokenRow> rows = {row_with(1, 20, 1), row_with(2, 100, 99)};
  const EvalResult a = alone(fixture, rows[0]);
  const EvalResult b = alone(fixture, rows[1]);
  REQUIRE(a.tokens == 1);
  REQUIRE(b.tokens == 99);
  REQUIRE(std::abs(a.loss - b.loss) > 0.1);
  const double expected = (a.loss + 99 * b.loss) / 100;
  const auto data = fixture.write("rows.jsonl", rows);

  fixture.run_here("packed", one_step(data));
  fixture.run_here("accumulated", one_step(data, {"bucket_tokens=100"}));
  fixture.run_here("forms", one_step(data, {"per_device_train_batch_size=1", "gradient_accumulation_steps=2"}));
  REQUIRE(fixture.run("ranks", one_step(data), 2).exit_code == 0);
  const double norm = fixture.metrics("packed").of_steps("grad_norm").at(0);
  for (const char* output : {"packed", "accumulated", "forms", "ranks"}) {
    INFO(output);
    const Json step = fixture.metrics(output).steps.at(0);
    CHECK(step.at("loss").get<double>() == Approx(expected).epsilon(1e-6));
    CHECK(step.at("grad_norm").get<double>() == Approx(norm).epsilon(1e-5));
    CHECK(step.at("tokens") == 120);
    CHECK(step.at("trained_tokens") == 100);
  }
}

TEST_CASE("sequence mean: every sequence weighs the same", "[loss]") {
  test::TrainingFixture fixture;
  const std::vector<TokenRow> rows = {row_with(1, 20, 1), row_with(2, 100, 99)};
  const double expected = (alone(fixture, rows[0]).loss + alone(fixture, rows[1]).loss) / 2;
  const auto data = fixture.write("rows.jsonl", rows);
  const Overrides options = one_step(data, {"loss_reduction=sequence_mean", "bucket_tokens=100"});
  fixture.run_here("one", options);
  REQUIRE(fixture.run("two", options, 2).exit_code == 0);
  for (const char* output : {"one", "two"}) {
    CHECK(fixture.metrics(output).of_steps("loss").at(0) == Approx(expected).epsilon(1e-6));
  }
}

TEST_CASE("an evaluation is the sum over all tokens divided once", "[loss]") {
  test::TrainingFixture fixture;
  const std::vector<TokenRow> rows = {row_with(3, 8, 1), row_with(4, 40, 30), row_with(5, 60, 9), row_with(6, 5, 4)};
  double sum = 0;
  std::int64_t tokens = 0;
  for (const TokenRow& row : rows) {
    const EvalResult result = alone(fixture, row);
    sum += result.loss * static_cast<double>(result.tokens);
    tokens += result.tokens;
  }
  const auto data = fixture.write("rows.jsonl", rows);
  for (const char* bucket : {"bucket_tokens=60", "bucket_tokens=auto"}) {
    const EvalResult result = fixture.evaluate_here({"dataset=" + data.string(), bucket});
    CHECK(result.tokens == tokens);
    CHECK(result.loss == Approx(sum / static_cast<double>(tokens)).epsilon(1e-6));
    CHECK(result.perplexity == Approx(std::exp(result.loss)).epsilon(1e-12));
  }
}

TEST_CASE("the smaller last batch of an epoch is divided by its own tokens", "[loss]") {
  test::TrainingFixture fixture;
  const TokenRow row = row_with(7, 12, 11);
  const auto data = fixture.write("rows.jsonl", std::vector<TokenRow>(7, row));
  fixture.run_here("run", one_step(data, {"global_batch_size=4", "bucket_tokens=12"}));
  const auto metrics = fixture.metrics("run");
  CHECK(metrics.of_steps("trained_tokens") == std::vector<double>{44, 33});
  CHECK(metrics.of_steps("epoch") == std::vector<double>{0.5, 1});
  const auto loss = metrics.of_steps("loss");
  const auto norm = metrics.of_steps("grad_norm");
  CHECK(loss.at(0) == Approx(alone(fixture, row).loss).epsilon(1e-6));
  CHECK(loss.at(1) == Approx(loss.at(0)).epsilon(1e-6));
  CHECK(norm.at(1) == Approx(norm.at(0)).epsilon(1e-6));
}

TEST_CASE("a document trains all its tokens but the first; a row without labels changes nothing", "[loss]") {
  test::TrainingFixture fixture;
  std::vector<TokenRow> rows = test::random_rows(8, 2, 30, 97);
  const auto length = [&](std::size_t i) { return static_cast<std::int64_t>(rows[i].ids.size()); };
  fixture.run_here("two", one_step(fixture.write("two.jsonl", rows)));
  const Json two = fixture.metrics("two").steps.at(0);
  CHECK(two.at("tokens") == length(0) + length(1));
  CHECK(two.at("trained_tokens") == length(0) + length(1) - 2);

  rows.insert(rows.begin() + 1, row_with(9, 25, 0));
  fixture.run_here("three", one_step(fixture.write("three.jsonl", rows)));
  CHECK(fixture.metrics("three").steps.at(0).at("loss") == two.at("loss"));
  CHECK(fixture.metrics("three").steps.at(0).at("grad_norm") == two.at("grad_norm"));
  CHECK(test::contains(read_file(fixture / "three" / "run.log"), "three.jsonl:2"));
}

TEST_CASE("steps of a run: every sample once per epoch, max_steps before epochs, fractions of an epoch", "[loss]") {
  test::TrainingFixture fixture;
  const auto rows = test::random_rows(10, 10, 12, 97);
  std::int64_t tokens = 0;
  for (const TokenRow& row : rows) tokens += static_cast<std::int64_t>(row.ids.size());
  const Overrides data = {"dataset=" + fixture.write("rows.jsonl", rows).string(), "learning_rate=0"};
  const auto steps = [&](const std::string& output, Overrides options) {
    options.insert(options.end(), data.begin(), data.end());
    return fixture.run_here(output, options);
  };
  const TrainSummary epoch = steps("epoch", {"num_train_epochs=1", "global_batch_size=4"});
  CHECK(epoch.steps == 3);
  CHECK(epoch.tokens == tokens);
  CHECK(steps("two", {"num_train_epochs=2", "global_batch_size=4"}).tokens == 2 * tokens);
  CHECK(steps("fraction", {"num_train_epochs=1.5", "global_batch_size=4"}).steps == 5);
  CHECK(fixture.metrics("fraction").of_steps("epoch").back() == Approx(5.0 / 3));
  CHECK(steps("more", {"max_steps=7", "num_train_epochs=1", "global_batch_size=4"}).steps == 7);
  CHECK(steps("fewer", {"max_steps=2", "num_train_epochs=100", "global_batch_size=4"}).steps == 2);
  const auto ranks = fixture.run("ranks",
                                 Overrides{data[0], data[1], "per_device_train_batch_size=1",
                                           "gradient_accumulation_steps=2", "num_train_epochs=1"},
                                 2);
  CHECK(test::result_of(ranks).at("steps") == 3);
  CHECK(test::result_of(ranks).at("tokens") == tokens);
}

TEST_CASE("a warm-up that leaves no training is an error, clipping is on unless switched off", "[loss]") {
  test::TrainingFixture fixture;
  const auto data = fixture.write("rows.jsonl", test::random_rows(11, 4, 12, 97));
  const auto failure_with = [&](const Overrides& more) {
    const test::Failure failure = test::failure_of([&] { fixture.run_here("warm", one_step(data, more)); });
    CHECK(failure.exit_code == 2);
    return failure.message;
  };
  CHECK(test::contains(failure_with({"max_steps=3", "warmup_steps=3"}), "leaves nothing of the 3 steps of max_steps"));
  CHECK(test::contains(failure_with({"max_steps=-1", "num_train_epochs=3", "warmup_steps=3"}),
                       "warmup_steps: the warm-up (3 steps) leaves nothing of the 3"));
  CHECK_FALSE(std::filesystem::exists(fixture / "warm" / "args.json"));

  const Overrides training = {"learning_rate=0.01", "lr_scheduler_type=constant", "max_steps=3"};
  fixture.run_here("default", one_step(data, training));
  CHECK(read_json_file(fixture / "default" / "args.json").at("max_grad_norm") == 1.0);
  CHECK(test::contains(read_file(fixture / "default" / "run.log"), "gradient clipping at norm 1"));
  Overrides unclipped = training;
  unclipped.emplace_back("max_grad_norm=0");
  fixture.run_here("off", one_step(data, unclipped));
  CHECK(test::contains(read_file(fixture / "off" / "run.log"), "gradient clipping off"));
  // Adam's first update does not depend on the gradient's size, the second does.
  CHECK(fixture.metrics("off").of_steps("grad_norm").at(0) == fixture.metrics("default").of_steps("grad_norm").at(0));
  CHECK(fixture.metrics("default").of_steps("grad_norm").at(0) > 1.0);
  CHECK(fixture.metrics("off").of_steps("loss").at(2) != fixture.metrics("default").of_steps("loss").at(2));
}
