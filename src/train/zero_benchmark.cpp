#include "skrull/train/zero_benchmark.h"

#include <memory>
#include <vector>

#include "random_batch.h"
#include "skrull/comm/communicator.h"
#include "skrull/core/median.h"
#include "skrull/core/stopwatch.h"
#include "skrull/device/ops.h"
#include "skrull/model/model_io.h"
#include "skrull/parallel/local_attention.h"
#include "skrull/parallel/trainable_parameters.h"
#include "skrull/schedule/memory_model.h"
#include "timed_step.h"

namespace skrull {
namespace {

/// One rank's parts of the benchmark.
class Bench {
 public:
  Bench(const Qwen2Config& model, const ZeroBenchmarkOptions& options, const MpiSession& session)
      : model_(model),
        options_(options),
        device_(make_cpu_device(spread_over_cores(session.local_rank(), session.local_size()).threads)),
        world_(session.world()),
        control_(*world_, device_->communication_stream()),
        table_(model),
        transformer_(model, transformer_options(), *device_),
        attention_(attention_shape(model), options.tokens, true, *device_),
        batch_(random_batch(mixed_lengths(options.tokens), model.vocab_size)) {
    attention_.begin(batch_);
  }

  ZeroBenchmark run();

 private:
  TransformerOptions transformer_options() const {
    TransformerOptions options;
    options.compute_dtype = options_.compute_dtype;
    options.max_tokens = options_.tokens;
    options.recompute = options_.recompute;
    return options;
  }

  std::unique_ptr<TrainableParameters> make_state(int zero_stage) {
    auto state = make_trainable_parameters(table_, {.compute_dtype = options_.compute_dtype, .zero_stage = zero_stage},
                                           *device_, *world_);
    state->set_values(
        [&](const BlockOnHost& block) { initialize_parameters(1, model_.initializer_range, table_, block); });
    return state;
  }

  /// Time of the slowest rank, processor time of all ranks.
  StepTime step(TrainableParameters& state) {
    control_.barrier();
    StepTime time = timed_step(batch_, transformer_, attention_, state, *device_);
    time.seconds = control_.max(time.seconds);
    time.processor_seconds = control_.sum(time.processor_seconds);
    return time;
  }

  std::int64_t planned_bytes() const {
    MemoryOptions memory;
    memory.compute_dtype = options_.compute_dtype;
    memory.recompute = options_.recompute;
    memory.zero_stage = options_.zero_stage;
    memory.world_size = world_->size();
    memory.tied_head = model_.tie_word_embeddings;
    return MemoryModel(model_.shape(), memory).bytes(options_.tokens);
  }

  void measure_update(ZeroBenchmark& result);

  Qwen2Config model_;
  ZeroBenchmarkOptions options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> world_;
  ControlChannel control_;
  ParameterTable table_;
  Transformer transformer_;
  LocalAttention attention_;
  MicroBatch batch_;
};

ZeroBenchmark Bench::run() {
  ZeroBenchmark result;
  result.device = device_->description();
  result.ranks = world_->size();
  result.planned_bytes = planned_bytes();
  const auto state = make_state(options_.zero_stage);
  const auto replicated = options_.alone ? nullptr : make_state(0);
  std::vector<double> seconds;
  std::vector<double> replicated_seconds;
  std::vector<double> ratios;
  std::vector<double> processor_ratios;
  for (std::int64_t turn = 0; turn <= options_.steps; ++turn) {
    const StepTime time = step(*state);
    const StepTime beside = replicated ? step(*replicated) : time;
    if (turn == 0) continue;  // warms up
    seconds.push_back(time.seconds);
    replicated_seconds.push_back(beside.seconds);
    ratios.push_back(time.seconds / beside.seconds);
    processor_ratios.push_back(time.processor_seconds / beside.processor_seconds);
  }
  result.step_seconds = median(seconds);
  result.peak_bytes = control_.max(device_->peak_bytes());
  if (!replicated) return result;
  result.replicated_step_seconds = median(replicated_seconds);
  result.ratio = median(ratios);
  result.processor_ratio = median(processor_ratios);
  measure_update(result);
  return result;
}

/// Update and plain pass in turns, on arrays far larger than any cache.
void Bench::measure_update(ZeroBenchmark& result) {
  constexpr std::int64_t elements = std::int64_t{1} << 24;
  constexpr int turns = 15;
  constexpr double update_bytes =
      28.0 * elements;                           // reads parameter, gradient, two moments, writes all but the gradient
  constexpr double add_bytes = 12.0 * elements;  // reads both, writes one
  std::vector<Buffer> arrays;
  arrays.reserve(4);
  for (int i = 0; i < 4; ++i) arrays.push_back(device_->allocate(DType::float32, 1, elements, "benchmark"));
  const auto view = [&](std::size_t i) { return arrays[i].view(DType::float32, 1, elements); };
  Stream& stream = device_->compute_stream();
  const auto rate = [&](double bytes, const auto& work) {
    control_.barrier();
    const Stopwatch watch;
    work();
    stream.synchronize();
    return bytes / control_.max(watch.seconds());
  };
  std::vector<double> updates;
  std::vector<double> adds;
  std::vector<double> ratios;
  for (int turn = 0; turn < turns; ++turn) {
    adds.push_back(rate(add_bytes, [&] { device_->ops().add(stream, view(1), view(0)); }));
    updates.push_back(rate(update_bytes, [&] {
      device_->ops().adamw(stream, {.parameter = view(0),
                                    .gradient = view(1),
                                    .first_moment = view(2),
                                    .second_moment = view(3),
                                    .compute_copy = {},
                                    .learning_rate = 1e-6});
    }));
    ratios.push_back(updates.back() / adds.back());
  }
  result.adamw_bytes_per_second = median(updates);
  result.memory_bytes_per_second = median(adds);
  result.adamw_over_memory = median(ratios);
}

}  // namespace

ZeroBenchmark bench_zero(const Qwen2Config& model, const ZeroBenchmarkOptions& options, const MpiSession& session) {
  return Bench(model, options, session).run();
}

Qwen2Config hundred_million() {
  Qwen2Config config;
  config.vocab_size = 32000;
  config.hidden_size = 768;
  config.intermediate_size = 2048;
  config.num_layers = 12;
  config.num_heads = 12;
  config.num_kv_heads = 4;
  config.head_dim = 64;
  config.max_position_embeddings = 32768;
  config.rope_theta = 1e6;
  config.tie_word_embeddings = true;
  return config;
}

}  // namespace skrull
