#include "skrull/train/step.h"

#include <algorithm>
#include <cmath>

namespace skrull {

double clip_coefficient(double norm, double max_norm) {
  constexpr double epsilon = 1e-6;
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + epsilon)) : 1.0;
}

StepOutcome run_step(const StepBatches& batches, const TrainConfig& config, double learning_rate, Transformer& model,
                     TrainableParameters& parameters, MicroBatchAttention& attention, ControlChannel& control,
                     const std::function<bool()>& stop_agreed) {
  StepOutcome outcome;
  parameters.begin_step(batches.micro_batch_count());
  double loss = 0;
  for (std::int64_t i = 0; i < batches.micro_batch_count(); ++i) {
    // An abandoned step still goes through its collectives, and then updates nothing.
    outcome.stopped = outcome.stopped || (i > 0 && stop_agreed && stop_agreed());
    const MicroBatch batch = outcome.stopped ? MicroBatch() : batches.micro_batch(i);
    attention.begin(batch);
    loss += model.forward_backward(batch, parameters, attention, parameters).weighted_loss;
  }
  parameters.finish_gradients();
  outcome.loss = control.sum(loss);
  outcome.grad_norm = parameters.gradient_norm();
  outcome.updated = !outcome.stopped && std::isfinite(outcome.loss) && std::isfinite(outcome.grad_norm);
  if (!outcome.updated) return outcome;
  const AdamWSettings settings{learning_rate, config.adam_beta1, config.adam_beta2, config.adam_epsilon,
                               config.weight_decay};
  parameters.update(settings, clip_coefficient(outcome.grad_norm, config.max_grad_norm));
  return outcome;
}

}  // namespace skrull
