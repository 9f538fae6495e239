// Whole runs with sharded training state: every stage trains to the same bits. That these are the losses of one rank is
// tested in layouts_test.cpp.
#include <string>
#include <vector>

#include "shared_fixture.h"
#include "skrull/core/file.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;
using test::Overrides;
using test::SharedFixture;

TEST_CASE("every ZeRO stage: the same rows of metrics and the same model over 20 steps, bit by bit", "[zero]") {
  SharedFixture fixture;
  const int ranks = test::mpi_session().size();
  const auto rows = fixture / "rows.jsonl";
  if (fixture.is_root()) fixture.own().write("rows.jsonl", test::random_rows(7, 40, 40, 97));
  const Overrides options = {"dataset=" + rows.string(),
                             "learning_rate=0.002",
                             "lr_scheduler_type=constant",
                             "weight_decay=0.1",
                             "max_steps=20",
                             "logging_steps=100",
                             "global_batch_size=8",
                             "max_grad_norm=0.5",
                             "val_size=5",
                             "eval_steps=7",
                             "overwrite_output_dir=true"};
  std::vector<int> degrees = {1};
  if (ranks % 2 == 0) degrees.push_back(2);
  for (const int context_parallel : degrees) {
    for (const auto& [stage, offload] :
         {std::pair{0, "none"}, {1, "none"}, {2, "none"}, {3, "none"}, {2, "cpu"}, {3, "cpu"}}) {
      const std::string output = fmt::format("cp{}-stage{}-offload-{}", context_parallel, stage, offload);
      fixture.train(
          output,
          test::joined(options, {fmt::format("zero_stage={}", stage), fmt::format("offload_optimizer={}", offload),
                                 fmt::format("context_parallel_size={}", context_parallel), "bucket_tokens=45"}));
      if (!fixture.is_root()) continue;
      INFO(output << " on " << ranks << " ranks");
      const std::string first = fmt::format("cp{}-stage0-offload-none", context_parallel);
      CHECK(read_file(fixture / output / "model.safetensors") == read_file(fixture / first / "model.safetensors"));
      CHECK(test::read_metrics(fixture / output).without_measurements() ==
            test::read_metrics(fixture / first).without_measurements());
    }
  }
}

TEST_CASE("evaluation: the same loss in every stage, that of the trained model", "[zero]") {
  SharedFixture fixture;
  const auto rows = fixture / "rows.jsonl";
  if (fixture.is_root()) fixture.own().write("rows.jsonl", test::random_rows(9, 23, 40, 97));
  const Overrides options = {"dataset=" + rows.string(), "max_steps=2", "global_batch_size=4", "val_size=9",
                             "bucket_tokens=45"};
  const double expected = fixture.train("trained", options).eval_loss;
  for (int stage = 0; stage <= 3; ++stage) {
    TrainConfig config =
        fixture.own().config("evaluated", test::joined(options, {"model_name_or_path=" + (fixture / "trained").string(),
                                                                 fmt::format("zero_stage={}", stage)}));
    const EvalResult result = evaluate(config, test::mpi_session());
    INFO("stage " << stage);
    CHECK(result.loss == expected);
  }
}

TEST_CASE("bfloat16 and the other recompute modes: the same bits in every stage, and with the optimizer on the host",
          "[zero]") {
  SharedFixture fixture;
  const auto rows = fixture / "rows.jsonl";
  if (fixture.is_root()) fixture.own().write("rows.jsonl", test::random_rows(8, 12, 40, 97));
  const Overrides options = {
      "dataset=" + rows.string(), "learning_rate=0.002", "lr_scheduler_type=constant", "max_steps=3",
      "logging_steps=100",        "global_batch_size=6", "bucket_tokens=60",           "compute_dtype=bfloat16"};
  fixture.train("expected", test::joined(options, {"zero_stage=0"}));
  for (const char* more : {"zero_stage=1", "zero_stage=2", "zero_stage=3", "offload_optimizer=cpu"}) {
    for (const char* recompute : {"none", "full"}) {
      const std::string output = std::string(more) + recompute;
      fixture.train(output, test::joined(options, {more, std::string("gradient_checkpointing=") + recompute}));
      if (!fixture.is_root()) continue;
      INFO(output);
      CHECK(read_file(fixture / output / "model.safetensors") == read_file(fixture / "expected" / "model.safetensors"));
    }
  }
}
