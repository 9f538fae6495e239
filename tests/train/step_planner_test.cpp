#include "skrull/train/step_planner.h"

#include "loaded_training.h"
#include "skrull/schedule/plan_io.h"
#include "support/catch.h"
#include "support/cost_model.h"

using namespace skrull;

namespace {

/// A data set of 30 rows, and one rank.
struct Fixture : test::TrainingFixture {
  Fixture()
      : training(config("out", {"dataset=" + write("rows.jsonl", test::random_rows(3, 30, 50, 64)).string()}), 100,
                 *this / "cache"),
        data{training.store, all_samples(*training.store)} {
    options.bucket_tokens = 60;
    options.global_batch_size = 7;
    options.seed = 5;
    options.policy = "skrull";
    options.cost = test::small_cost_model();
  }

  std::string text_of(const Plan& plan) const {
    PlanFile file;
    file.plan = plan;
    file.model = options.cost->model();
    return plan_to_json(file);
  }

  test::LoadedTraining training;
  Dataset data;
  LoaderOptions options;
};

}  // namespace

TEST_CASE("plans made ahead are those that the loader makes, in any order of steps") {
  Fixture fixture;
  Loader loader(*fixture.data.store, fixture.data.samples, fixture.options);
  StepPlanner planner(fixture.data, fixture.options, 12, fixture.training.rank.control());
  for (const std::int64_t step : {0, 1, 2, 5, 6, 3, 11, 4}) {
    const StepBatches ahead = planner.step(step).batches;
    const StepBatches expected = loader.step(step);
    CHECK(ahead.batch().samples == expected.batch().samples);
    CHECK(fixture.text_of(ahead.plan()) == fixture.text_of(expected.plan()));
    REQUIRE(ahead.micro_batch_count() == expected.micro_batch_count());
    for (std::int64_t k = 0; k < ahead.micro_batch_count(); ++k) {
      CHECK(ahead.micro_batch(k).ids == expected.micro_batch(k).ids);
    }
  }
}

TEST_CASE("what planning throws reaches the caller at its step") {
  Fixture fixture;
  fixture.options.bucket_tokens = 1;
  StepPlanner planner(fixture.data, fixture.options, 12, fixture.training.rank.control());
  CHECK_THROWS_AS(planner.step(0), InvalidInput);
}
