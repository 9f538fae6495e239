#pragma once
// Learning-rate schedules: pure functions of the step, equal to those of Hugging Face transformers (optimization.py).

#include <cstdint>

#include "skrull/config/train_config.h"

namespace skrull {

/// A schedule with every length in steps.
struct LearningRatePlan {
  LearningRateSchedule schedule = LearningRateSchedule::cosine;
  double peak = 0;       ///< learning rate after the warm-up
  double min_ratio = 0;  ///< of peak; used by cosine_with_min_lr and wsd
  std::int64_t total_steps = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  ///< wsd only
};

/// warmup_steps > 0 wins over warmup_ratio (rounded up). Throws InvalidInput when the warm-up leaves no step after it
/// (warm-up >= total), except under constant, which has none.
LearningRatePlan plan_learning_rate(const TrainConfig& config, std::int64_t total_steps);

/// Learning rate of optimizer step `step`, counted from 0. Under a warm-up of w steps step s < w has s / w of the peak,
/// so that the very first step has 0, as in transformers.
double learning_rate_at(const LearningRatePlan& plan, std::int64_t step);

}  // namespace skrull
