#include "skrull/train/learning_rate.h"

#include <string>

#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;

namespace {

LearningRateSchedule schedule_named(const std::string& name) {
  for (const auto& choice : choices_of<LearningRateSchedule>) {
    if (choice.name == name) return choice.value;
  }
  return LearningRateSchedule::wsd;  // transformers calls it warmup_stable_decay
}

}  // namespace

TEST_CASE("every schedule equals that of transformers") {
  int compared = 0;
  for (const Json& golden : read_json_file(test::test_data("model/learning_rates.json"))) {
    const Json& arguments = golden["arguments"];
    if (arguments.value("decay_type", "cosine") != "cosine")
      continue;  // ours decays by a cosine, transformers' default
    TrainConfig config;
    config.lr_scheduler_type = schedule_named(golden["lr_scheduler_type"]);
    config.learning_rate = golden["learning_rate"];
    config.warmup_steps = golden["warmup_steps"];
    config.warmup_ratio = 0;
    const std::int64_t total = golden["total_steps"];
    config.min_lr_ratio = arguments.contains("min_lr_rate") ? arguments["min_lr_rate"].get<double>()
                                                            : arguments.value("min_lr_ratio", 0.0);
    config.lr_decay_ratio = arguments.value("num_decay_steps", 0.0) / static_cast<double>(total);
    const LearningRatePlan plan = plan_learning_rate(config, total);
    for (std::int64_t step = 0; step < total; ++step) {
      INFO(golden["function"] << " " << arguments.dump() << " step " << step << " of " << total);
      REQUIRE(learning_rate_at(plan, step) ==
              Approx(golden["rates"][static_cast<std::size_t>(step)].get<double>()).epsilon(1e-12).margin(1e-18));
      ++compared;
    }
  }
  CHECK(compared > 400);
}

TEST_CASE("a warm-up that leaves no step is refused, a ratio of a very short run is not") {
  TrainConfig config;
  config.warmup_steps = 10;
  CHECK_THROWS_AS(plan_learning_rate(config, 10), InvalidInput);
  CHECK_NOTHROW(plan_learning_rate(config, 11));
  config.warmup_steps = 0;
  config.warmup_ratio = 0.03;
  CHECK(plan_learning_rate(config, 1).warmup_steps == 0);
  CHECK(plan_learning_rate(config, 100).warmup_steps == 3);
  config.warmup_ratio = 1.0;
  CHECK_THROWS_AS(plan_learning_rate(config, 10), InvalidInput);
  config.lr_scheduler_type = LearningRateSchedule::constant;
  CHECK(learning_rate_at(plan_learning_rate(config, 10), 0) == config.learning_rate);
}
