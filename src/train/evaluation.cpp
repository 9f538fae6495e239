#include "skrull/train/evaluation.h"

#include <cmath>

namespace skrull {

std::optional<EvalResult> evaluate_dataset(const Dataset& dataset, const LoaderOptions& options, Transformer& model,
                                           ParameterProvider& parameters, MicroBatchAttention& attention,
                                           ControlChannel& control, const std::function<bool()>& stop_agreed) {
  Loader loader(*dataset.store, dataset.samples, evaluation_options(options, *dataset.store, dataset.samples));
  double loss = 0;
  std::int64_t tokens = 0;
  for (std::int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const StepBatches batches = loader.step(step);
    for (std::int64_t i = 0; i < batches.micro_batch_count(); ++i) {
      if (stop_agreed && stop_agreed()) return std::nullopt;
      const MicroBatch batch = batches.micro_batch(i);
      attention.begin(batch);
      const LossSums sums = model.evaluate(batch, parameters, attention);
      loss += sums.loss;
      tokens += sums.supervised_tokens;
    }
  }
  EvalResult result;
  result.tokens = control.sum(tokens);
  result.loss = control.sum(loss) / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace skrull
