#include "skrull/train/step_planner.h"

#include <utility>

#include "skrull/core/stopwatch.h"
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

StepPlanner::MadePlan StepPlanner::make(std::int64_t step) {
  const Stopwatch watch;
  PlanFile file;
  file.plan = ahead_.plan(ahead_.global_batch(step));
  file.model = options_.cost->model();
  const double predicted = evaluate_plan(file.plan, *options_.cost).step_seconds;
  std::string text = plan_to_json(file);
  return {std::move(text), predicted, watch.seconds(), 0.0};
}

StepPlanner::MadePlan StepPlanner::take(std::int64_t step) {
  if (control_.rank() != 0) return {};
  const Stopwatch watch;
  MadePlan made;
  const bool ahead = planned_.valid();
  if (ahead) made = planned_.get();  // also when it is of another step: the thread uses ahead_
  if (!ahead || planned_step_ != step) made = make(step);
  made.waited_seconds = watch.seconds();
  return made;
}

PlannedStep StepPlanner::step(std::int64_t step) {
  GlobalBatch batch = loader_.global_batch(step);
  const MadePlan made = control_.run_together([&] { return take(step); });
  Plan plan = parse_plan(control_.broadcast(made.text), "the plan of rank 0").plan;
  if (control_.rank() == 0 && step + 1 < steps_) {
    planned_step_ = step + 1;
    planned_ = std::async(std::launch::async, [this, next = step + 1] { return make(next); });
  }
  const int context_parallel = options_.topology.context_parallel;
  return {
      {store_, std::move(batch), std::move(plan), options_.rank / context_parallel, options_.rank % context_parallel},
      made.predicted_seconds,
      made.scheduling_seconds,
      made.waited_seconds};
}

}  // namespace skrull
