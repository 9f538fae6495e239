#pragma once
// Who plans the steps of a run: rank 0, one step ahead, for all ranks.

#include <cstdint>
#include <future>
#include <string>

#include "skrull/comm/communicator.h"
#include "skrull/data/loader.h"
#include "skrull/train/datasets.h"

namespace skrull {

/// Gives each rank its micro-batches of a step. The plan is made by rank 0 alone, on a thread of its own while the step
/// before computes, and broadcast: so all ranks have one plan even when the search ends by the clock.
/// One rank's micro-batches of a step; the times are known on rank 0 alone, 0 elsewhere.
struct PlannedStep {
  StepBatches batches;
  double predicted_seconds = 0;   ///< of the whole step, by the cost model
  double scheduling_seconds = 0;  ///< that making the plan took
  double waited_seconds = 0;      ///< of these, those in which nothing else went on
};

class StepPlanner {
 public:
  /// `steps` of the run: no further one is planned ahead. `dataset` and `control` must outlive this.
  StepPlanner(const Dataset& dataset, const LoaderOptions& options, std::int64_t steps, ControlChannel& control);

  /// Any step from 0 on; the one after the last call's is there without waiting. Collective. Throws on all ranks what
  /// planning throws.
  PlannedStep step(std::int64_t step);

 private:
  struct MadePlan {
    std::string text;
    double predicted_seconds = 0;
    double scheduling_seconds = 0;
    double waited_seconds = 0;
  };
  MadePlan make(std::int64_t step);
  MadePlan take(std::int64_t step);

  const TokenStore& store_;
  LoaderOptions options_;
  std::int64_t steps_;
  ControlChannel& control_;
  Loader loader_;
  Loader ahead_;  ///< of the planning thread
  std::int64_t planned_step_ = -1;
  std::future<MadePlan> planned_;  ///< of planned_step_, on rank 0; waits for its thread when destroyed
};

}  // namespace skrull
