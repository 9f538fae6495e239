#include "timed_step.h"

#include <algorithm>
#include <ctime>

#include "skrull/core/stopwatch.h"

namespace skrull {

std::vector<std::int64_t> mixed_lengths(std::int64_t tokens, std::int64_t longest) {
  std::vector<std::int64_t> lengths;
  while (tokens > 0) {
    lengths.push_back(std::min((tokens + 1) / 2, longest));
    tokens -= lengths.back();
  }
  return lengths;
}

StepTime timed_step(const MicroBatch& batch, Transformer& model, AttentionExecutor& attention,
                    TrainableParameters& parameters, Device& device) {
  const Stopwatch watch;
  const std::clock_t processor_begin = std::clock();
  parameters.begin_step(1);
  model.forward_backward(batch, parameters, attention, parameters);
  parameters.finish_gradients();
  const Stopwatch update_watch;
  parameters.gradient_norm();
  AdamWSettings settings;
  settings.learning_rate = 1e-6;
  parameters.update(settings, 1.0);
  device.compute_stream().synchronize();
  device.communication_stream().synchronize();
  const auto ticks = static_cast<double>(std::clock() - processor_begin);
  return {watch.seconds(), update_watch.seconds(), ticks / CLOCKS_PER_SEC};
}

}  // namespace skrull
