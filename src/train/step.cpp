#include "skrull/train/step.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace skrull {

namespace {

double seconds_between(const Event& begin, const Event& end) {
  end.synchronize();
  return end.seconds() - begin.seconds();
}

}  // namespace

double clip_coefficient(double norm, double max_norm) {
  constexpr double epsilon = 1e-6;
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + epsilon)) : 1.0;
}

StepOutcome run_step(const StepBatches& batches, const TrainConfig& config, double learning_rate, Transformer& model,
                     TrainableParameters& parameters, MicroBatchAttention& attention, Device& device,
                     ControlChannel& control, const std::function<bool()>& stop_agreed) {
  Stream& compute = device.compute_stream();
  Timeline& timeline = device.timeline();
  timeline.take();
  const Event begin = compute.record_time();
  StepOutcome outcome;
  std::vector<PendingLosses> losses;
  std::vector<std::pair<Event, Event>> micro_batches;
  parameters.begin_step(batches.micro_batch_count());
  for (std::int64_t i = 0; i < batches.micro_batch_count(); ++i) {
    // An abandoned step still goes through its collectives, and then updates nothing.
    outcome.stopped = outcome.stopped || (i > 0 && stop_agreed && stop_agreed());
    const MicroBatch batch = outcome.stopped ? MicroBatch() : batches.micro_batch(i);
    timeline.set_micro_batch(i);
    const auto span = timeline.scope(SpanKind::compute, compute, {"micro-batch"});
    Event start = compute.record_time();
    attention.begin(batch);
    losses.push_back(model.forward_backward(batch, parameters, attention, parameters));
    micro_batches.emplace_back(std::move(start), compute.record_time());
  }
  timeline.set_micro_batch(-1);
  parameters.finish_gradients();
  double loss = 0;
  for (const PendingLosses& micro_batch : losses) loss += micro_batch.sums().weighted_loss;
  outcome.loss = control.sum(loss);
  outcome.grad_norm = parameters.gradient_norm();
  outcome.updated = !outcome.stopped && std::isfinite(outcome.loss) && std::isfinite(outcome.grad_norm);
  if (outcome.updated) {
    const auto span = timeline.scope(SpanKind::compute, compute, {"update"});
    const AdamWSettings settings{learning_rate, config.adam_beta1, config.adam_beta2, config.adam_epsilon,
                                 config.weight_decay};
    parameters.update(settings, clip_coefficient(outcome.grad_norm, config.max_grad_norm));
  }
  outcome.times.step = seconds_between(begin, compute.record_time());
  outcome.spans = timeline.take();
  const TimelineSums sums = sum_spans(outcome.spans);
  outcome.times.compute = -sums.waiting_in_micro_batches;
  for (const auto& [start, end] : micro_batches) outcome.times.compute += seconds_between(start, end);
  outcome.times.communication = sums.communication;
  outcome.times.exposed = sums.waiting;
  return outcome;
}

}  // namespace skrull
