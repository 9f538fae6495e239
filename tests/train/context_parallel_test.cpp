// Sequences over several ranks: the same training as on one rank, whatever the layout and the policy.
#include "skrull/core/file.h"
#include "support/catch.h"
#include "training_fixture.h"

using namespace skrull;
using test::check_same;
using test::check_same_run;
using test::contains;
using test::Overrides;
using test::TokenRow;

namespace {

const Overrides common = {"learning_rate=0.002", "lr_scheduler_type=constant", "weight_decay=0.1",
                          "max_steps=3",         "logging_steps=100",          "global_batch_size=16"};

/// Rows of these lengths; every third with a prompt that is not trained.
std::vector<TokenRow> rows_of(const std::vector<std::size_t>& lengths) {
  std::vector<TokenRow> rows;
  std::int32_t next = 5;
  for (const std::size_t length : lengths) {
    TokenRow row;
    for (std::size_t t = 0; t < length; ++t) {
      next = (next * 17 + static_cast<std::int32_t>(t % 7) + 3) % 97;
      row.ids.push_back(next);
    }
    if (rows.size() % 3 == 2) {
      row.labels = row.ids;
      std::fill_n(row.labels->begin(), length / 2, -100);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Overrides sharded(int context_parallel, const std::string& policy, const std::string& bucket) {
  return {fmt::format("context_parallel_size={}", context_parallel), "scheduler.policy=" + policy,
          "bucket_tokens=" + bucket};
}

struct Fixture : test::TrainingFixture {
  void train(const std::string& output, const Overrides& options, int ranks) {
    const test::CommandResult result = run(output, options, ranks);
    INFO(output << ": " << result.errors);
    REQUIRE(result.exit_code == 0);
  }
  Overrides on(const std::string& name, const std::vector<TokenRow>& rows) {
    return test::joined(common, {"dataset=" + write(name, rows).string()});
  }
};

}  // namespace

TEST_CASE("every layout and policy gives the same losses, gradient norms and weights", "[context_parallel]") {
  Fixture fixture;
  const Overrides options =
      fixture.on("rows.jsonl", rows_of({2, 3, 7, 31, 64, 127, 500, 5, 12, 90, 33, 2, 18, 250, 41, 9}));
  fixture.run_here("reference", options);
  REQUIRE(fixture.metrics("reference").steps.size() == 3);
  struct Layout {
    int ranks;
    Overrides options;
  };
  const std::vector<Layout> layouts = {
      {2, sharded(1, "skrull", "512")},
      {2, sharded(2, "skrull", "300")},
      {2, sharded(2, "packed", "auto")},
      {2, sharded(2, "skrull-paper", "260")},
      {3, sharded(3, "deepspeed", "180")},
      {3, test::joined(sharded(3, "skrull", "190"), {"gradient_checkpointing=full", "scheduler.cost_model=paper"})},
      {4, sharded(2, "skrull", "255")},
      {4, sharded(2, "packed-balanced", "260")},
      {4, sharded(2, "deepspeed", "auto")},
      {4, sharded(4, "skrull", "130")},
      {4, sharded(4, "packed", "127")},
      {4, sharded(4, "skrull-paper", "135")},
  };
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const std::string output = "layout-" + std::to_string(i);
    INFO(output);
    fixture.train(output, test::joined(options, layouts[i].options), layouts[i].ranks);
    check_same_run(fixture, output, "reference");
  }
}

TEST_CASE("bfloat16 over rings stays near float32 on one rank", "[context_parallel]") {
  Fixture fixture;
  const Overrides options = fixture.on("rows.jsonl", rows_of({40, 7, 33, 90, 2, 18, 64, 25}));
  fixture.run_here("reference", options);
  fixture.train("rings", test::joined(options, test::joined(sharded(3, "packed", "auto"), {"compute_dtype=bfloat16"})),
                3);
  for (const char* field : {"loss", "grad_norm"}) {
    check_same(fixture.metrics("rings").of_steps(field), fixture.metrics("reference").of_steps(field), 2e-2);
  }
}

TEST_CASE("the same config twice gives the same bits, evaluation included", "[context_parallel]") {
  Fixture fixture;
  const Overrides options =
      test::joined(fixture.on("rows.jsonl", rows_of({40, 7, 33, 90, 2, 18, 64, 25, 11, 150, 3})),
                   test::joined(sharded(2, "skrull", "80"), {"val_size=3", "eval_steps=1", "global_batch_size=4"}));
  for (const char* output : {"first", "second"}) fixture.train(output, options, 4);
  CHECK(fixture.metrics("first").without_measurements() == fixture.metrics("second").without_measurements());
  CHECK(read_file(fixture / "first" / "model.safetensors") == read_file(fixture / "second" / "model.safetensors"));
}

TEST_CASE("an evaluation gives the same numbers over rings", "[context_parallel]") {
  Fixture fixture;
  const Overrides data = {"dataset=" + fixture.write("rows.jsonl", rows_of({40, 7, 133, 90, 2, 18, 64, 25})).string()};
  const EvalResult expected = fixture.evaluate_here(data);
  const std::vector<std::pair<int, Overrides>> layouts = {{2, sharded(2, "packed", "70")},
                                                          {3, sharded(3, "packed", "70")},
                                                          {4, sharded(2, "skrull", "70")},
                                                          {4, sharded(4, "deepspeed", "40")}};
  for (const auto& [ranks, layout] : layouts) {
    const auto result = fixture.evaluate(test::joined(data, layout), ranks);
    INFO(result.errors);
    const Json numbers = test::result_of(result);
    CHECK(numbers.at("loss").get<double>() == Approx(expected.loss).epsilon(1e-5));
    CHECK(numbers.at("tokens").get<std::int64_t>() == expected.tokens);
  }
}

TEST_CASE("a token that no trained token of its own row can see changes no bit, over rings", "[context_parallel]") {
  Fixture fixture;
  auto rows = rows_of({19, 34, 25});
  rows[1].labels = std::vector<std::int32_t>(34, -100);
  (*rows[1].labels)[13] = rows[1].ids[13];  // seen by it: tokens 0 to 12
  const auto weights_after = [&](const std::string& output, std::size_t changed_place) {
    auto changed = rows;
    changed[1].ids[changed_place] = (changed[1].ids[changed_place] + 1) % 97;
    fixture.train(output, test::joined(fixture.on(output + ".jsonl", changed), sharded(2, "packed", "auto")), 2);
    return std::pair{fixture.metrics(output).of_steps("loss"), read_file(fixture / output / "model.safetensors")};
  };
  // On 2 ranks the chunks begin at 0, 9, 18 and 26: one place in each of the last three.
  const auto expected = weights_after("last", 33);
  CHECK(weights_after("third", 20) == expected);
  CHECK(weights_after("second", 14) == expected);
  const auto seen = weights_after("seen", 12);
  CHECK(seen.first.front() != expected.first.front());
  CHECK(seen.second != expected.second);
}

TEST_CASE("a row that fits no ring is named, with what would do", "[context_parallel]") {
  Fixture fixture;
  const auto result =
      fixture.run("out", test::joined(fixture.on("rows.jsonl", rows_of({9, 40})), sharded(2, "packed", "19")), 2);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.errors,
                 "rows.jsonl:2: the row has 40 tokens (20 on each context-parallel rank) and does not fit into "
                 "bucket_tokens 19: set bucket_tokens to at least 20, or cutoff_len to at most 38, or "
                 "context_parallel_size to at least 3"));
}

TEST_CASE("rows that fit no ring are cut or left out by cutoff_len and overlength", "[context_parallel]") {
  Fixture fixture;
  const Overrides options = test::joined(fixture.on("rows.jsonl", rows_of({9, 40, 12})), sharded(2, "packed", "19"));
  const std::vector<std::pair<std::string, double>> ends = {{"truncate", 9 + 38 + 12}, {"drop", 9 + 12}};
  for (const auto& [overlength, tokens] : ends) {
    fixture.train(overlength, test::joined(options, {"cutoff_len=38", "overlength=" + overlength}), 2);
    for (const double of_step : fixture.metrics(overlength).of_steps("tokens")) CHECK(of_step == tokens);
  }
  const auto refused = fixture.run("out", test::joined(options, {"cutoff_len=38", "overlength=error"}), 2);
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.errors, "rows.jsonl:2"));
}

TEST_CASE("ranks that context parallelism does not divide are refused with what would do", "[context_parallel]") {
  Fixture fixture;
  for (const int ranks : {2, 3}) {
    const auto result =
        fixture.run("out", test::joined(fixture.on("rows.jsonl", rows_of({9, 40})), sharded(4, "skrull", "64")), ranks);
    CHECK(result.exit_code == 2);
    CHECK(
        contains(result.errors, fmt::format("context_parallel_size 4 does not divide the {} ranks of this run: choose "
                                            "one of 1, {}, or start another number of ranks",
                                            ranks, ranks)));
    CHECK_FALSE(std::filesystem::exists(fixture / "out" / "metrics.jsonl"));
  }
}
