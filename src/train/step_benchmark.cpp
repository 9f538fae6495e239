#include "skrull/train/step_benchmark.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "random_batch.h"
#include "skrull/comm/communicator.h"
#include "skrull/core/error.h"
#include "skrull/core/median.h"
#include "skrull/model/model_io.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/local_attention.h"
#include "skrull/parallel/trainable_parameters.h"
#include "skrull/schedule/cost_model.h"
#include "skrull/schedule/memory_model.h"
#include "skrull/train/local_device.h"
#include "timed_step.h"

namespace skrull {
namespace {

/// FLOP/s of one step's products: every block's, and the head's in chunks.
double product_rate(const std::vector<OpRate>& rates, const BenchShape& shape, std::int64_t num_layers) {
  const double chunks = static_cast<double>(shape.tokens) / static_cast<double>(shape.loss_chunk_tokens);
  double flops = 0;
  double seconds = 0;
  for (const OpRate& rate : rates) {
    const double times = rate.name.starts_with("head") ? chunks : static_cast<double>(num_layers);
    flops += times * rate.gflops * 1e9 * rate.seconds;
    seconds += times * rate.seconds;
  }
  return flops / seconds;
}

}  // namespace

BenchShape bench_shape(const Qwen2Config& model, std::int64_t tokens) {
  BenchShape shape;
  shape.tokens = tokens;
  shape.hidden = model.hidden_size;
  shape.num_heads = model.num_heads;
  shape.num_kv_heads = model.num_kv_heads;
  shape.head_dim = model.head_dim;
  shape.intermediate = model.intermediate_size;
  shape.vocabulary = model.vocab_size;
  shape.loss_chunk_tokens = std::min(shape.loss_chunk_tokens, tokens);
  return shape;
}

double predict_step(const ModelShape& model, const std::vector<std::int64_t>& lengths, Recompute recompute,
                    const HardwareProfile& profile) {
  Plan plan;
  plan.lengths = lengths;
  plan.bucket_tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  PlannedMicroBatch micro_batch;
  micro_batch.local.resize(1);
  for (std::size_t i = 0; i < lengths.size(); ++i) micro_batch.local.front().push_back(static_cast<std::int64_t>(i));
  plan.micro_batches = {{std::move(micro_batch)}};
  return evaluate_plan(plan, CostModel(model, profile, recompute)).step_seconds;
}

namespace {

std::int64_t tokens_beside_state(const Qwen2Config& model, const StepBenchmarkOptions& options, const Device& device) {
  MemoryOptions memory;
  memory.compute_dtype = options.compute_dtype;
  memory.recompute = options.recompute;
  memory.tied_head = model.tie_word_embeddings;
  const std::int64_t tokens = MemoryModel(model.shape(), memory).most_tokens_beside_state(device.free_bytes());
  if (tokens < 1) throw_run_failure("not one token fits beside the training state: {}", device.description());
  return tokens;
}

}  // namespace

StepBenchmark bench_step(const Qwen2Config& model, const StepBenchmarkOptions& options) {
  const std::unique_ptr<Device> device = make_local_device(options.device, options.threads, 0, options.attention);
  const std::int64_t available_bytes = device->free_bytes();
  const std::unique_ptr<Communicator> self = make_self_communicator(device->ops());
  const ParameterTable table(model);
  const auto parameters = make_trainable_parameters(table, {options.compute_dtype, true}, *device, *self);
  parameters->set_values(
      [&](const BlockOnHost& block) { initialize_parameters(1, model.initializer_range, table, block); });
  const std::int64_t tokens = options.fill_memory ? tokens_beside_state(model, options, *device) : options.tokens;
  TransformerOptions model_options;
  model_options.compute_dtype = options.compute_dtype;
  model_options.max_tokens = tokens;
  model_options.recompute = options.recompute;
  Transformer transformer(model, model_options, *device);
  LocalAttention attention(attention_shape(model), tokens, true, *device);

  StepBenchmark result;
  result.device = device->description();
  result.tokens = tokens;
  result.lengths = mixed_lengths(tokens, options.longest);
  result.model_flops = model.training_flops(result.lengths);
  result.available_bytes = available_bytes;
  result.planned_bytes = device->memory().current_bytes();
  const MicroBatch batch = random_batch(result.lengths, model.vocab_size);
  attention.begin(batch);

  std::vector<double> step_seconds;
  std::vector<double> update_seconds;
  const auto run_step = [&] {
    const StepTime time = timed_step(batch, transformer, attention, *parameters, *device);
    step_seconds.push_back(time.seconds);
    update_seconds.push_back(time.update_seconds);
  };
  run_step();
  result.peak_bytes = device->peak_bytes();
  step_seconds.clear();
  update_seconds.clear();

  // Beside a full memory there is room for the products of some of its tokens.
  constexpr std::int64_t enough_tokens = 8192;
  const BenchShape shape = bench_shape(model, options.fill_memory ? std::min(tokens, enough_tokens) : tokens);
  std::vector<double> product_rates;
  std::vector<double> ratios;
  for (std::int64_t turn = 0; turn < options.steps; ++turn) {
    product_rates.push_back(
        product_rate(bench_products(*device, shape, options.compute_dtype, 0.05), shape, model.num_layers));
    run_step();
    ratios.push_back(result.model_flops / step_seconds.back() / product_rates.back());
  }
  result.step_seconds = median(step_seconds);
  result.fastest_step_seconds = *std::min_element(step_seconds.begin(), step_seconds.end());
  result.update_seconds = median(update_seconds);
  result.step_flops_per_second = result.model_flops / result.step_seconds;
  result.product_flops_per_second = median(product_rates);
  result.ratio = median(ratios);
  result.peak_flops_per_second = device->peak_flops(options.compute_dtype);
  return result;
}

}  // namespace skrull
