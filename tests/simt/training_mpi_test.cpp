// The whole trainer on the CUDA device's code against the CPU device: rings, sequences that are whole, every ZeRO
// stage. Streams run late and in an order that only events restrain, so a wait that is missing somewhere shows as other
// numbers.
#include <cstdlib>
#include <string>
#include <vector>

#include "shared_fixture.h"
#include "simt/simt.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;
using test::Overrides;
using test::SharedFixture;

namespace {

/// Five steps, each with sequences of 2 to 40 tokens and some that only fit a ring of both ranks.
struct Trainings {
  Trainings() {
    if (fixture.is_root()) {
      std::vector<test::TokenRow> all = test::random_rows(7, 30, 40, 97);
      for (const test::TokenRow& longer : test::random_rows(8, 10, 150, 97)) all.push_back(longer);
      fixture.own().write("rows.jsonl", all);
    }
    options = {"dataset=" + (fixture / "rows.jsonl").string(),
               "learning_rate=0.002",
               "lr_scheduler_type=constant",
               "weight_decay=0.1",
               "max_steps=5",
               "global_batch_size=8",
               "max_grad_norm=0.5",
               "bucket_tokens=100",
               "logging_steps=1",
               "overwrite_output_dir=true"};
  }

  void train(const std::string& output, const std::string& device, const Overrides& more) {
    fixture.train(output, test::joined(test::joined(options, {"device=" + device}), more));
  }

  /// Rank 0 compares; `tolerance` of losses, gradient norms and weights.
  void check_same(const std::string& output, const std::string& expected, double tolerance) {
    if (!fixture.is_root()) return;
    const test::MetricsRows rows = test::read_metrics(fixture / output);
    const test::MetricsRows expected_rows = test::read_metrics(fixture / expected);
    REQUIRE(rows.steps.size() == 5);
    for (const char* field : {"loss", "grad_norm"}) {
      test::check_same(rows.of_steps(field), expected_rows.of_steps(field), tolerance);
    }
    CHECK(test::largest_relative_difference(test::read_weights(fixture / output),
                                            test::read_weights(fixture / expected)) <= tolerance);
  }

  SharedFixture fixture;
  Overrides options;
};

/// Under as many orders of the streams; ZeRO stages in turn.
void check_training(const char* dtype, double tolerance, int context_parallel, std::uint64_t orders) {
  Trainings trainings;
  const Overrides layout = {fmt::format("context_parallel_size={}", context_parallel),
                            fmt::format("bucket_tokens={}", context_parallel == 1 ? 200 : 100),
                            fmt::format("compute_dtype={}", dtype)};
  trainings.train("expected", "cpu", layout);
  for (std::uint64_t seed = 1; seed <= orders; ++seed) {
    simt::options().seed = seed;
    const auto stage = seed % 4;
    INFO("seed " << seed << ", ZeRO " << stage);
    trainings.train("on_gpu", "cuda", test::joined(layout, {fmt::format("zero_stage={}", stage)}));
    trainings.check_same("on_gpu", "expected", tolerance);
  }
}

}  // namespace

TEST_CASE("the GPU's code trains as the CPU device does: float32, rings and whole sequences", "[float32]") {
  check_training("float32", 1e-4, 2, 10);
}

TEST_CASE("the GPU's code trains as the CPU device does: bfloat16, rings and whole sequences") {
  check_training("bfloat16", 2e-2, 2, 10);
}

TEST_CASE("the GPU's code trains as the CPU device does: two replicas") {
  check_training("float32", 1e-4, 1, 4);
  check_training("bfloat16", 2e-2, 1, 4);
}
