#include "skrull/train/step_planner.h"

#include <utility>

#include "skrull/schedule/plan_io.h"

namespace skrull {

StepPlanner::StepPlanner(const Dataset& dataset, const LoaderOptions& options, std::int64_t steps,
                         ControlChannel& control)
    : store_(*dataset.store),
      options_(options),
      steps_(steps),
      control_(control),
      loader_(store_, dataset.samples, options),
      ahead_(store_, dataset.samples, options) {}

std::string StepPlanner::plan_as_text(std::int64_t step) {
  PlanFile file;
  file.plan = ahead_.plan(ahead_.global_batch(step));
  file.model = options_.cost->model();
  return plan_to_json(file);
}

std::string StepPlanner::take_plan(std::int64_t step) {
  if (control_.rank() != 0) return "";
  if (planned_.valid()) {
    std::string text = planned_.get();  // also when it is of another step: the thread uses ahead_
    if (planned_step_ == step) return text;
  }
  return plan_as_text(step);
}

StepBatches StepPlanner::step(std::int64_t step) {
  GlobalBatch batch = loader_.global_batch(step);
  const std::string of_rank_0 = control_.run_together([&] { return take_plan(step); });
  Plan plan = parse_plan(control_.broadcast(of_rank_0), "the plan of rank 0").plan;
  if (control_.rank() == 0 && step + 1 < steps_) {
    planned_step_ = step + 1;
    planned_ = std::async(std::launch::async, [this, next = step + 1] { return plan_as_text(next); });
  }
  const int context_parallel = options_.topology.context_parallel;
  return {store_, std::move(batch), std::move(plan), options_.rank / context_parallel,
          options_.rank % context_parallel};
}

}  // namespace skrull
