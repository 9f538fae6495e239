// Packed sequences do not see each other, through the whole trainer; and the loss of worked examples (sums of
// cross-entropies over supervised tokens, divided once), computed by a model whose cross-entropies are known.
#include <set>

#include "edited_models.h"
#include "loaded_training.h"
#include "skrull/core/file.h"
#include "support/catch.h"

using namespace skrull;
using test::joined;
using test::Overrides;
using test::TokenRow;

namespace {

/// Four rows of 9, 14, 5 and 11 tokens. In row 1 only the token at place 3 is trained: what follows it cannot matter.
std::vector<TokenRow> probe_rows() {
  std::vector<TokenRow> rows;
  std::int32_t next = 5;
  for (const std::size_t length : {9, 14, 5, 11}) {
    TokenRow row;
    for (std::size_t t = 0; t < length; ++t) row.ids.push_back(next = (next * 17 + 3) % 97);
    rows.push_back(std::move(row));
  }
  rows[1].labels = std::vector<std::int32_t>(14, -100);
  (*rows[1].labels)[3] = rows[1].ids[3];
  return rows;
}

/// The same rows with another token at one place; the labels stay.
std::vector<TokenRow> perturbed(std::vector<TokenRow> rows, std::size_t row, std::size_t place) {
  std::int32_t& id = rows[row].ids[place];
  id = (id + 1) % 97;
  return rows;
}

/// metrics.jsonl of a run on several ranks, or (0) within this process.
test::MetricsRows metrics_of(test::TrainingFixture& fixture, const std::string& output, const Overrides& options,
                             int ranks) {
  if (ranks == 0) {
    fixture.run_here(output, options);
  } else {
    const test::CommandResult result = fixture.run(output, options, ranks);
    INFO(result.errors);
    REQUIRE(result.exit_code == 0);
  }
  return fixture.metrics(output);
}

struct Trace {
  std::vector<double> loss;
  std::vector<double> grad_norm;
  std::string weights;
  bool operator==(const Trace&) const = default;
};

Trace train_on(test::TrainingFixture& fixture, const std::string& output, const std::vector<TokenRow>& rows,
               const Overrides& more, int ranks = 0) {
  const Overrides options = joined({"dataset=" + fixture.write(output + ".jsonl", rows).string(), "max_steps=3",
                                    "learning_rate=0.01", "lr_scheduler_type=constant", "data_order=sequential"},
                                   more);
  const test::MetricsRows metrics = metrics_of(fixture, output, options, ranks);
  return {metrics.of_steps("loss"), metrics.of_steps("grad_norm"), read_file(fixture / output / "model.safetensors")};
}

/// A row whose context token `context` predicts token 0 `count` times; only that is trained.
TokenRow repeated(std::int32_t context, int count) {
  TokenRow row;
  row.labels.emplace();
  for (int i = 0; i < count; ++i) {
    row.ids.push_back(context);
    row.ids.push_back(0);
    row.labels->push_back(-100);
    row.labels->push_back(0);
  }
  return row;
}

/// Context token c predicts token 0 with this cross-entropy.
const std::map<std::int32_t, double> known_losses = {{1, 1.0}, {2, 2.0}, {4, 4.0}, {6, 6.0}, {10, 10.0}};

struct WorkedExamples : test::TrainingFixture {
  WorkedExamples() { test::write_model_of_known_losses(*this / "known", 0, known_losses); }

  Overrides on(const std::vector<TokenRow>& rows, const Overrides& more = {}) {
    return joined({"dataset=" + write("rows.jsonl", rows).string(), "model_name_or_path=" + (*this / "known").string(),
                   "learning_rate=0", "num_train_epochs=1", "data_order=sequential"},
                  more);
  }
  test::MetricsRows train(const Overrides& options, int ranks = 0) {
    const std::string output = fmt::format("run-{}", ++runs_);
    return metrics_of(*this, output, options, ranks);
  }
  double loss_of_first_step(const Overrides& options, int ranks = 0) {
    return train(options, ranks).of_steps("loss").at(0);
  }

 private:
  int runs_ = 0;
};

}  // namespace

TEST_CASE("a token that no trained token of its own row can see changes no bit of a training run", "[packing]") {
  test::TrainingFixture fixture;
  const auto rows = probe_rows();
  const Overrides again = {"overwrite_output_dir=true"};
  const Trace expected = train_on(fixture, "plain", rows, {});
  for (const std::size_t place : {4, 13}) {
    INFO(place);
    CHECK(train_on(fixture, "probe", perturbed(rows, 1, place), again) == expected);
  }
  // The probe itself can fail: a token before the trained one changes everything.
  const Trace seen = train_on(fixture, "probe", perturbed(rows, 1, 2), again);
  CHECK(seen.loss.front() != expected.loss.front());
  CHECK(seen.weights != expected.weights);

  const Overrides half = {"compute_dtype=bfloat16", "overwrite_output_dir=true"};
  CHECK(train_on(fixture, "probe", perturbed(rows, 1, 4), half) == train_on(fixture, "plain", rows, half));
  const Overrides small = {"bucket_tokens=25", "gradient_checkpointing=full"};
  CHECK(train_on(fixture, "two-probe", perturbed(rows, 1, 13), small, 2) ==
        train_on(fixture, "two-plain", rows, small, 2));
}

TEST_CASE("in the micro-batches of training one changed token changes logits of its own row from there on alone",
          "[packing]") {
  test::TrainingFixture fixture;
  const auto rows = probe_rows();
  constexpr std::int64_t bucket = 39;
  const auto logits_of = [&](const std::vector<TokenRow>& some, const std::string& dtype) {
    test::LoadedTraining run(fixture.config("run", {"dataset=" + fixture.write("probe.jsonl", some).string(), dtype}),
                             bucket, fixture / "cache");
    const StepBatches step = test::one_rank_step(*run.store, {0, 1, 2, 3}, bucket);
    REQUIRE(step.micro_batch_count() == 1);
    const MicroBatch batch = step.micro_batch(0);
    REQUIRE(batch.local.size() == 4);
    std::vector<std::int32_t> all(static_cast<std::size_t>(batch.tokens()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    const Buffer logits = run.rank.device().allocate(DType::float32, batch.tokens(), 97, "test");
    const TensorView view = logits.view(DType::float32, batch.tokens(), 97);
    run.attention.begin(batch);
    run.model.logits(batch, all, run.state.parameters(), run.attention, view);
    std::vector<std::vector<float>> by_token;
    for (std::int64_t t = 0; t < batch.tokens(); ++t) {
      by_token.emplace_back(view.as<float>() + t * 97, view.as<float>() + (t + 1) * 97);
    }
    return by_token;
  };
  for (const std::string dtype : {"compute_dtype=float32", "compute_dtype=bfloat16"}) {
    const auto before = logits_of(rows, dtype);
    std::size_t begin = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::size_t length = rows[row].ids.size();
      for (const std::size_t place : {std::size_t{0}, length / 2, length - 1}) {
        INFO(dtype << ", row " << row << ", token " << place);
        const auto after = logits_of(perturbed(rows, row, place), dtype);
        std::set<std::size_t> changed;
        for (std::size_t t = 0; t < after.size(); ++t) {
          if (after[t] != before[t]) changed.insert(t);
        }
        std::set<std::size_t> expected;
        for (std::size_t t = begin + place; t < begin + length; ++t) expected.insert(t);
        CHECK(changed == expected);
      }
      begin += length;
    }
  }
}

TEST_CASE("rows of any length packed, one by one and over ranks: the same loss and gradient norm", "[packing]") {
  test::TrainingFixture fixture;
  std::vector<TokenRow> rows;
  std::int64_t tokens = 0;
  for (const std::size_t length : {2, 3, 1, 7, 31, 2, 64, 5}) {
    TokenRow row;
    for (std::size_t t = 0; t < length; ++t) row.ids.push_back(static_cast<std::int32_t>((length * 13 + t * t) % 97));
    if (length > 1) tokens += static_cast<std::int64_t>(length);
    rows.push_back(std::move(row));
  }
  const Overrides options = {"dataset=" + fixture.write("rows.jsonl", rows).string(), "learning_rate=0", "max_steps=1"};
  const auto step_of = [&](const std::string& output, const Overrides& more, int ranks) {
    return metrics_of(fixture, output, joined(options, more), ranks).steps.at(0);
  };
  const Json packed = step_of("packed", {}, 0);
  CHECK(packed.at("tokens") == tokens);
  CHECK(packed.at("trained_tokens") == tokens - 7);  // a row of T tokens has T - 1 to predict, one of 1 none
  CHECK(test::contains(read_file(fixture / "packed" / "run.log"), "kept 7 of 8 rows: 1 dropped without a token"));
  double sum = 0;
  for (const TokenRow& row : rows) {
    if (row.ids.size() == 1) continue;
    const EvalResult alone =
        fixture.evaluate_here({"dataset=" + fixture.write("alone.jsonl", std::vector<TokenRow>{row}).string()});
    CHECK(alone.tokens == static_cast<std::int64_t>(row.ids.size()) - 1);
    sum += alone.loss * static_cast<double>(alone.tokens);
  }
  CHECK(packed.at("loss").get<double>() == Approx(sum / static_cast<double>(tokens - 7)).epsilon(1e-6));
  const std::vector<std::pair<Overrides, int>> layouts = {
      {{"bucket_tokens=64"}, 0},
      {{"per_device_train_batch_size=1", "gradient_accumulation_steps=8", "bucket_tokens=64"}, 0},
      {{}, 2},
      {{"bucket_tokens=64"}, 4}};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    INFO(i);
    const Json step = step_of(fmt::format("layout-{}", i), layouts[i].first, layouts[i].second);
    CHECK(step.at("loss").get<double>() == Approx(packed.at("loss").get<double>()).epsilon(1e-6));
    CHECK(step.at("grad_norm").get<double>() == Approx(packed.at("grad_norm").get<double>()).epsilon(1e-5));
  }
}

TEST_CASE("worked examples: evaluation", "[packing]") {
  WorkedExamples examples;
  for (const auto& [context, loss] : known_losses) {
    CHECK(examples.evaluate_here(examples.on({repeated(context, 3)})).loss == Approx(loss).epsilon(1e-5));
  }
  // Batches of (loss, tokens) (2, 1) and (90, 9): 92 / 10, not the mean of 2 and 10.
  for (const char* bucket : {"bucket_tokens=18", "bucket_tokens=auto"}) {
    const EvalResult result = examples.evaluate_here(examples.on({repeated(2, 1), repeated(10, 9)}, {bucket}));
    CHECK(result.tokens == 10);
    CHECK(result.loss == Approx(9.2).epsilon(1e-5));
  }
}

TEST_CASE("worked examples: accumulation, ranks and sequence mean", "[packing]") {
  WorkedExamples examples;
  // One token of 4.0 and 99 tokens of 1.0.
  const std::vector<TokenRow> uneven = {repeated(4, 1), repeated(1, 99)};
  const Overrides accumulated = {"per_device_train_batch_size=1", "gradient_accumulation_steps=2", "bucket_tokens=198"};
  CHECK(examples.loss_of_first_step(examples.on(uneven, accumulated)) == Approx(1.03).epsilon(1e-5));
  CHECK(examples.loss_of_first_step(examples.on(uneven, joined(accumulated, {"loss_reduction=sequence_mean"}))) ==
        Approx(2.5).epsilon(1e-5));
  // Rank 0: three tokens, sum 6. Rank 1: one token, sum 6.
  const Overrides ranks = examples.on({repeated(2, 3), repeated(6, 1)});
  CHECK(examples.loss_of_first_step(ranks, 2) == Approx(3.0).epsilon(1e-5));
  // A rank without a trained token of its own.
  CHECK(examples.loss_of_first_step(examples.on({repeated(2, 10)}), 2) == Approx(2.0).epsilon(1e-5));
  // Three batches of 2.0 and one in which all is masked.
  TokenRow masked = repeated(6, 4);
  masked.labels = std::vector<std::int32_t>(8, -100);
  CHECK(examples.loss_of_first_step(examples.on({repeated(2, 4), masked, repeated(2, 4), repeated(2, 4)},
                                                {"bucket_tokens=8"})) == Approx(2.0).epsilon(1e-5));
}

TEST_CASE("worked examples: a rank whose shard has no label", "[packing]") {
  WorkedExamples examples;
  // 40 tokens over two ranks: rank 1 holds tokens 10 to 29 and predicts 11 to 30, rank 0 the others. Ten labels of 2.0.
  for (const bool on_rank_0 : {false, true}) {
    INFO(on_rank_0);
    TokenRow row = repeated(2, 20);
    for (std::size_t t = 0; t < row.ids.size(); ++t) {
      const bool label_of_rank_0 = t <= 10 || t > 30;
      if (label_of_rank_0 != on_rank_0) (*row.labels)[t] = -100;
    }
    const Overrides options = examples.on({row}, {"context_parallel_size=2", "bucket_tokens=20"});
    const Json step = examples.train(options, 2).steps.at(0);
    CHECK(step.at("trained_tokens") == 10);
    CHECK(step.at("loss").get<double>() == Approx(2.0).epsilon(1e-5));
    CHECK(step.at("grad_norm").get<double>() > 0.1);
    CHECK(test::result_of(examples.evaluate(options, 2)).at("loss").get<double>() == Approx(2.0).epsilon(1e-5));
  }
  // Four micro-batches over rings of which one has a single label: 3 x 4 x 2.0 and 6.0, over 13 labels.
  TokenRow masked = repeated(6, 4);
  masked.labels = std::vector<std::int32_t>(8, -100);
  (*masked.labels)[1] = 0;
  const Overrides rings = examples.on({repeated(2, 4), masked, repeated(2, 4), repeated(2, 4)},
                                      {"context_parallel_size=2", "bucket_tokens=4", "scheduler.policy=deepspeed"});
  CHECK(examples.loss_of_first_step(rings, 2) == Approx(30.0 / 13).epsilon(1e-5));
}

TEST_CASE("worked examples: the last, smaller accumulation of an epoch weighs its own tokens", "[packing]") {
  WorkedExamples examples;
  const Overrides options =
      examples.on(std::vector<TokenRow>(7, repeated(2, 2)),
                  {"per_device_train_batch_size=1", "gradient_accumulation_steps=4", "bucket_tokens=4"});
  const test::MetricsRows metrics = examples.train(options);
  REQUIRE(metrics.steps.size() == 2);
  CHECK(metrics.of_steps("trained_tokens") == std::vector<double>{8, 6});
  CHECK(metrics.of_steps("loss").at(1) == Approx(2.0).epsilon(1e-5));
  CHECK(metrics.of_steps("grad_norm").at(1) == Approx(metrics.of_steps("grad_norm").at(0)).epsilon(1e-6));
  CHECK(metrics.of_steps("grad_norm").at(0) > 0.1);
}
