// The same training, however it is laid out: ranks, micro-batches, recomputation, precision.
#include <cmath>

#include "skrull/core/file.h"
#include "support/catch.h"
#include "training_fixture.h"

using namespace skrull;
using test::check_same;
using test::check_same_run;
using test::Overrides;

namespace {

Overrides operator+(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// 22 rows in 3 epochs of 8 + 8 + 6 sequences.
const Overrides common = {"learning_rate=0.002", "lr_scheduler_type=cosine", "warmup_ratio=0",
                          "weight_decay=0.1",    "num_train_epochs=2",       "logging_steps=100"};

}  // namespace

TEST_CASE("every layout gives the same losses, gradient norms and weights", "[layouts]") {
  test::TrainingFixture fixture;
  const Overrides data = {"dataset=" + fixture.write("rows.jsonl", test::random_rows(1, 22, 40, 97)).string()};
  const Overrides options = common + data;
  fixture.run_here("reference", options + Overrides{"global_batch_size=8"});
  REQUIRE(fixture.metrics("reference").steps.size() == 6);

  struct Layout {
    int ranks;
    Overrides options;
  };
  const std::vector<Layout> layouts = {
      {0, {"global_batch_size=8", "bucket_tokens=40"}},
      {0, {"global_batch_size=8", "bucket_tokens=64", "gradient_checkpointing=full", "loss_chunk_tokens=7"}},
      {0, {"per_device_train_batch_size=2", "gradient_accumulation_steps=4"}},
      {1, {"per_device_train_batch_size=8"}},
      {2, {"global_batch_size=8"}},
      {2, {"per_device_train_batch_size=1", "gradient_accumulation_steps=4", "bucket_tokens=50"}},
      {3, {"global_batch_size=8", "gradient_checkpointing=full"}},
      {3, {"global_batch_size=8", "bucket_tokens=40"}},
      {4, {"per_device_train_batch_size=2", "bucket_tokens=41"}},
  };
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const std::string output = "layout-" + std::to_string(i);
    INFO(output);
    const auto result = fixture.run(output, options + layouts[i].options, layouts[i].ranks);
    INFO(result.errors);
    REQUIRE(result.exit_code == 0);
    check_same_run(fixture, output, "reference");
  }
}

TEST_CASE("sharded training state: the losses of one rank over 20 steps", "[layouts]") {
  // One stage for each number of ranks: on as many ranks all stages give the same bits (zero_mpi_test.cpp).
  test::TrainingFixture fixture;
  const Overrides options =
      common + Overrides{"dataset=" + fixture.write("rows.jsonl", test::random_rows(7, 40, 40, 97)).string(),
                         "max_steps=20", "global_batch_size=8", "max_grad_norm=0.5", "bucket_tokens=45"};
  fixture.run_here("reference", options);
  const std::vector<std::pair<int, Overrides>> layouts = {{2, {"zero_stage=1"}},
                                                          {3, {"zero_stage=3"}},
                                                          {4, {"zero_stage=0", "reduce_gradients=step"}},
                                                          {4, {"zero_stage=3", "context_parallel_size=2"}}};
  for (const auto& [ranks, more] : layouts) {
    const std::string output = fmt::format("{}-{}", ranks, more.back());
    INFO(output);
    const auto result = fixture.run(output, options + more, ranks);
    INFO(result.errors);
    REQUIRE(result.exit_code == 0);
    check_same_run(fixture, output, "reference");
  }
}

TEST_CASE("one sample on eight ranks trains as on one", "[layouts]") {
  test::TrainingFixture fixture;
  const Overrides options =
      common + Overrides{"dataset=" + fixture.write("rows.jsonl", test::random_rows(2, 1, 30, 97)).string()};
  fixture.run_here("one", options);
  const auto result = fixture.run("eight", options, 8);
  INFO(result.errors);
  REQUIRE(result.exit_code == 0);
  CHECK(fixture.metrics("eight").steps.size() == 2);
  check_same(fixture.metrics("eight").of_steps("loss"), fixture.metrics("one").of_steps("loss"), 1e-5);
  check_same(fixture.metrics("eight").of_steps("grad_norm"), fixture.metrics("one").of_steps("grad_norm"), 1e-5);
}

TEST_CASE("the same config twice gives the same bits", "[layouts]") {
  test::TrainingFixture fixture;
  const Overrides options =
      common + Overrides{"dataset=" + fixture.write("rows.jsonl", test::random_rows(3, 14, 40, 97)).string(),
                         "val_size=3", "eval_steps=1", "global_batch_size=4", "bucket_tokens=64"};
  for (const int ranks : {0, 3}) {
    for (const char* name : {"first", "second"}) {
      const auto result = fixture.run(name + std::to_string(ranks), options, ranks);
      INFO(result.errors);
      REQUIRE(result.exit_code == 0);
    }
    const auto output = [&](const std::string& name) { return name + std::to_string(ranks); };
    CHECK(fixture.metrics(output("first")).without_measurements() ==
          fixture.metrics(output("second")).without_measurements());
    CHECK(read_file(fixture / output("first") / "model.safetensors") ==
          read_file(fixture / output("second") / "model.safetensors"));
  }
}

TEST_CASE("bfloat16 stays near float32, on one rank and on two", "[layouts]") {
  test::TrainingFixture fixture;
  const Overrides options =
      common + Overrides{"dataset=" + fixture.write("rows.jsonl", test::random_rows(4, 12, 40, 97)).string(),
                         "global_batch_size=4"};
  fixture.run_here("float32", options);
  fixture.run_here("bfloat16", options + Overrides{"compute_dtype=bfloat16"});
  const auto result = fixture.run("two", options + Overrides{"compute_dtype=bfloat16", "bucket_tokens=50"}, 2);
  INFO(result.errors);
  REQUIRE(result.exit_code == 0);
  for (const char* name : {"bfloat16", "two"}) {
    INFO(name);
    check_same(fixture.metrics(name).of_steps("loss"), fixture.metrics("float32").of_steps("loss"), 2e-2);
    check_same(fixture.metrics(name).of_steps("grad_norm"), fixture.metrics("float32").of_steps("grad_norm"), 2e-2);
    CHECK(fixture.metrics(name).of_steps("loss") != fixture.metrics("float32").of_steps("loss"));
  }
}
