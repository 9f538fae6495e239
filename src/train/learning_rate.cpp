#include "skrull/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "skrull/core/error.h"

namespace skrull {
namespace {

/// 1 at progress 0, 0 at progress 1.
double half_cosine(double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

double ratio(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole));
}

double wsd_factor(const LearningRatePlan& plan, std::int64_t step) {
  const std::int64_t decay_begin = plan.total_steps - plan.decay_steps;
  double factor = 1.0;
  if (step < plan.warmup_steps) {
    factor = ratio(step, plan.warmup_steps);
  } else if (step >= decay_begin) {
    factor = step < plan.total_steps ? half_cosine(ratio(step - decay_begin, plan.decay_steps)) : 0.0;
  }
  return plan.min_ratio + (1.0 - plan.min_ratio) * factor;
}

}  // namespace

LearningRatePlan plan_learning_rate(const TrainConfig& config, std::int64_t total_steps) {
  LearningRatePlan plan;
  plan.schedule = config.lr_scheduler_type;
  plan.peak = config.learning_rate;
  plan.min_ratio = config.min_lr_ratio;
  plan.total_steps = total_steps;
  if (plan.schedule == LearningRateSchedule::constant) return plan;

  const auto steps_of = [&](double share) {
    return static_cast<std::int64_t>(std::ceil(share * static_cast<double>(total_steps)));
  };
  const bool by_steps = config.warmup_steps > 0;
  plan.warmup_steps = by_steps ? config.warmup_steps : steps_of(config.warmup_ratio);
  // A ratio of a very short run rounds up to all of it: then the run has no warm-up instead of no training.
  if (!by_steps && plan.warmup_steps >= total_steps && config.warmup_ratio < 1.0) plan.warmup_steps = total_steps - 1;
  if (plan.warmup_steps >= total_steps) {
    throw_invalid_input(
        "{}: the warm-up ({} steps) leaves nothing of the {} optimizer steps of this run; give fewer warm-up steps or "
        "more epochs",
        by_steps ? "warmup_steps" : "warmup_ratio", plan.warmup_steps, total_steps);
  }
  if (plan.schedule == LearningRateSchedule::wsd) {
    plan.decay_steps = std::min(steps_of(config.lr_decay_ratio), total_steps - plan.warmup_steps);
  }
  return plan;
}

double learning_rate_at(const LearningRatePlan& plan, std::int64_t step) {
  if (plan.schedule == LearningRateSchedule::constant) return plan.peak;
  if (plan.schedule == LearningRateSchedule::wsd) return plan.peak * wsd_factor(plan, step);
  if (step < plan.warmup_steps) return plan.peak * ratio(step, plan.warmup_steps);

  const double progress = std::min(1.0, ratio(step - plan.warmup_steps, plan.total_steps - plan.warmup_steps));
  switch (plan.schedule) {
    case LearningRateSchedule::linear:
      return plan.peak * (1.0 - progress);
    case LearningRateSchedule::cosine:
      return plan.peak * half_cosine(progress);
    case LearningRateSchedule::cosine_with_min_lr:
      return plan.peak * (plan.min_ratio + (1.0 - plan.min_ratio) * half_cosine(progress));
    default:
      return plan.peak;
  }
}

}  // namespace skrull
