#include "skrull/train/profiler.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "random_batch.h"
#include "rising_rates.h"
#include "skrull/comm/communicator.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"
#include "skrull/core/stopwatch.h"
#include "skrull/device/stream_stopwatch.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/local_attention.h"
#include "skrull/parallel/trainable_parameters.h"
#include "skrull/schedule/cost_model.h"
#include "skrull/train/step_benchmark.h"

namespace skrull {
namespace {

/// Layers that are measured: more than one, so that each finds its weights as cold as in a whole model.
constexpr std::int64_t measured_layers = 2;
constexpr std::int64_t most_tokens = 8192;
/// Sequences shorter than this are measured side by side, this many tokens at once, as they come in training.
constexpr std::int64_t packed_tokens = 256;
constexpr std::int64_t least_rounds = 3;
/// Of the time, the most that one micro-batch may take.
constexpr double largest_share = 0.1;
/// Tokens of the shard for which a ring's step is measured.
constexpr std::int64_t ring_shard_tokens = 1024;
constexpr std::int64_t copied_bytes = std::int64_t{16} << 20;

/// The lower quartile of all but the first time, which met new memory and kernels that were not yet made: what others
/// do on the machine only adds to a time.
double typical(const std::vector<double>& times) {
  std::vector<double> values(times.begin() + 1, times.end());
  std::sort(values.begin(), values.end());
  return values[values.size() / 4];
}

/// To four digits: more would pretend.
double rounded(double value) {
  return std::stod(fmt::format("{:.4g}", value));
}

/// Shares of the last and largest rate.
LogLogCurve efficiencies(const std::vector<LogLogCurve::Point>& rates) {
  std::vector<LogLogCurve::Point> shares;
  shares.reserve(rates.size());
  for (const LogLogCurve::Point& rate : rates) shares.push_back({rate.at, rounded(rate.value / rates.back().value)});
  return {std::move(shares), LogLogCurve::BelowFirst::proportional};
}

LogLogCurve constant_curve(std::int64_t at, double value) {
  return {{{static_cast<double>(at), rounded(value)}}, LogLogCurve::BelowFirst::constant};
}

/// LocalAttention that knows what part of a step it was.
class TimedAttention final : public AttentionExecutor {
 public:
  TimedAttention(AttentionShape shape, std::int64_t max_tokens, Device& device)
      : attention_(shape, max_tokens, true, device), stream_(device.compute_stream()) {}

  void begin(const MicroBatch& batch) {
    attention_.begin(batch);
    forward_seconds = backward_seconds = 0;
  }
  void forward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out,
               TensorView lse) override {
    forward_seconds += time([&] { attention_.forward(layer, q, k, v, out, lse); });
  }
  void backward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView out,
                ConstTensorView lse, ConstTensorView dout, TensorView dq, TensorView dk, TensorView dv) override {
    backward_seconds += time([&] { attention_.backward(layer, q, k, v, out, lse, dout, dq, dk, dv); });
  }

  double forward_seconds = 0;  ///< over all layers since begin()
  double backward_seconds = 0;

 private:
  template <class Work>
  double time(const Work& work) {
    const StreamStopwatch watch(stream_);
    work();
    return watch.seconds();
  }

  LocalAttention attention_;
  Stream& stream_;
};

/// One kind of micro-batch, and what of it was measured, once a round.
struct Probe {
  std::int64_t length = 0;     ///< of each sequence
  std::int64_t sequences = 0;  ///< 0: an empty micro-batch
  bool head = false;           ///< every token is supervised; else none, and the head has nothing to do
  MicroBatch batch;
  std::vector<double> whole;              ///< seconds of forward and backward without attention
  std::vector<double> attention_forward;  ///< of one layer
  std::vector<double> attention_backward;

  std::int64_t tokens() const { return length * sequences; }
  double attention() const { return typical(attention_forward) + typical(attention_backward); }
};

Probe make_probe(std::int64_t length, std::int64_t sequences, bool head, std::int64_t vocabulary) {
  Probe probe{length, sequences, head, {}, {}, {}, {}};
  probe.batch = random_batch(std::vector<std::int64_t>(static_cast<std::size_t>(sequences), length), vocabulary);
  for (std::size_t i = 0; i < probe.batch.ids.size(); ++i) {
    probe.batch.labels[i] = head ? probe.batch.ids[i] : ignored_label;
    probe.batch.weights[i] = head ? 1e-3F : 0.0F;
  }
  return probe;
}

/// The model with fewer layers, its training state, and the micro-batches it is measured with.
class Profiler {
 public:
  Profiler(const Qwen2Config& model, const ProfilerOptions& options, Device& device)
      : model_(model),
        shortened_(shorten(model)),
        options_(options),
        device_(device),
        self_(make_self_communicator()),
        table_(shortened_),
        parameters_(make_trainable_parameters(table_, {options.compute_dtype, true}, device, *self_)),
        max_tokens_(affordable_tokens()),
        transformer_(shortened_, transformer_options(max_tokens_), device),
        attention_(attention_shape(model), max_tokens_, device) {
    parameters_->set_values(
        [&](const BlockOnHost& block) { initialize_parameters(1, model.initializer_range, table_, block); });
    copied_on_host_.resize(static_cast<std::size_t>(copied_bytes));
    copied_ = device.allocate(copied_bytes, "profile");
    merge_ = device.allocate(DType::float32, 2 * ring_shard_tokens, model.query_size() + model.num_heads, "profile");
    key_values_ = device.allocate(DType::float32, 2 * ring_shard_tokens, 2 * model.key_value_size(), "profile");
  }

  ProfilerResult run();

 private:
  static Qwen2Config shorten(Qwen2Config model) {
    model.num_layers = std::min(model.num_layers, measured_layers);
    return model;
  }
  TransformerOptions transformer_options(std::int64_t max_tokens) const {
    TransformerOptions options;
    options.compute_dtype = options_.compute_dtype;
    options.max_tokens = max_tokens;
    return options;
  }
  /// What half of the free memory holds.
  std::int64_t affordable_tokens() const {
    std::int64_t tokens = most_tokens;
    while (tokens > packed_tokens &&
           Transformer::planned_bytes(shortened_, transformer_options(tokens)) > device_.free_bytes() / 2) {
      tokens /= 2;
    }
    return tokens;
  }

  /// Forward and backward of an empty micro-batch.
  void run_empty();
  /// Runs it once and keeps the times; returns the seconds it took.
  double measure(Probe& probe);
  /// Everything that is measured beside micro-batches.
  void measure_the_rest();
  /// The first round: ascending, as long as micro-batches are affordable.
  void choose_probes();

  /// Of the measured micro-batches.
  double over_layers(double seconds) const { return seconds / static_cast<double>(shortened_.num_layers); }
  LayerOverhead overhead() const;
  /// Seconds of the head with `layers_[index].tokens()` tokens.
  double head_seconds(std::size_t index) const;
  std::vector<LogLogCurve::Point> linear_rates(const LayerOverhead& overhead) const;
  std::vector<LogLogCurve::Point> attention_rates(const LayerOverhead& overhead) const;
  /// Gradients set to zero, norm and update, for each parameter.
  double update_seconds_per_parameter() const;
  HardwareProfile profile(std::int64_t rounds) const;

  const Qwen2Config model_;
  const Qwen2Config shortened_;
  const ProfilerOptions options_;
  Device& device_;
  std::unique_ptr<Communicator> self_;
  ParameterTable table_;
  std::unique_ptr<TrainableParameters> parameters_;
  std::int64_t max_tokens_;
  Transformer transformer_;
  TimedAttention attention_;
  std::vector<char> copied_on_host_;
  Buffer copied_, merge_, key_values_;

  Probe empty_;
  std::vector<Probe> layers_;  ///< by tokens: one sequence each
  std::vector<Probe> packed_;  ///< several short sequences of one length
  std::vector<Probe> head_;    ///< by tokens
  std::vector<double> empty_forward_, update_, merge_seconds_, add_seconds_, copy_seconds_;
};

void Profiler::run_empty() {
  attention_.begin(empty_.batch);
  transformer_.forward_backward(empty_.batch, *parameters_, attention_, *parameters_);
}

double Profiler::measure(Probe& probe) {
  // Between two empty ones: the first micro-batch of a step sets the gradients to zero, the last one sums them.
  parameters_->begin_step(3);
  run_empty();
  attention_.begin(probe.batch);
  const StreamStopwatch watch(device_.compute_stream());
  transformer_.forward_backward(probe.batch, *parameters_, attention_, *parameters_);
  const double seconds = watch.seconds();
  const double forward = attention_.forward_seconds;
  const double backward = attention_.backward_seconds;
  run_empty();
  parameters_->finish_gradients();
  device_.compute_stream().synchronize();
  const auto layers = static_cast<double>(shortened_.num_layers);
  probe.whole.push_back(seconds - forward - backward);
  probe.attention_forward.push_back(forward / layers);
  probe.attention_backward.push_back(backward / layers);
  return seconds;
}

void Profiler::measure_the_rest() {
  Stream& stream = device_.compute_stream();
  Ops& ops = device_.ops();
  const auto timed = [&](std::vector<double>& times, const auto& work) {
    const StreamStopwatch watch(stream);
    work();
    times.push_back(watch.seconds());
  };
  measure(empty_);
  attention_.begin(empty_.batch);
  timed(empty_forward_, [&] { transformer_.evaluate(empty_.batch, *parameters_, attention_); });
  timed(update_, [&] {
    parameters_->begin_step(1);
    run_empty();
    parameters_->finish_gradients();
    parameters_->gradient_norm();
    AdamWSettings settings;
    settings.learning_rate = 1e-6;
    parameters_->update(settings, 1.0);
  });
  const std::int64_t rows = ring_shard_tokens;
  const std::int64_t partial_bytes = rows * (model_.query_size() + model_.num_heads) * size_of(DType::float32);
  const auto outputs = [&](std::int64_t offset) {
    return merge_.view(DType::float32, rows, model_.query_size(), offset);
  };
  const auto sums = [&](std::int64_t offset) {
    return merge_.view(DType::float32, rows, model_.num_heads,
                       offset + rows * model_.query_size() * size_of(DType::float32));
  };
  timed(merge_seconds_, [&] {
    ops.attention_merge(stream, model_.head_dim, outputs(partial_bytes), sums(partial_bytes), outputs(0), sums(0));
  });
  const TensorView both = key_values_.view(DType::float32, 2 * rows, 2 * model_.key_value_size());
  timed(add_seconds_, [&] { ops.add(stream, both.slice_rows(rows, rows), both.slice_rows(0, rows)); });
  timed(copy_seconds_, [&] {
    device_.copy_to_device(stream, copied_.view(DType::float32, 1, copied_bytes / size_of(DType::float32)),
                           copied_on_host_.data());
  });
}

void Profiler::choose_probes() {
  empty_ = make_probe(0, 0, false, model_.vocab_size);
  measure_the_rest();
  double last = 0;
  std::int64_t last_tokens = 0;
  for (std::int64_t tokens = 1; tokens <= max_tokens_;
       tokens = std::min(4 * tokens, std::max(tokens + 1, max_tokens_))) {
    const double expected =
        last * static_cast<double>(tokens) / static_cast<double>(std::max<std::int64_t>(last_tokens, 1));
    if (tokens > packed_tokens && expected > largest_share * options_.seconds) break;
    layers_.push_back(make_probe(tokens, 1, false, model_.vocab_size));
    measure(layers_.back());
    last = measure(layers_.back());  // the second run: the first one meets new memory
    last_tokens = tokens;
    log::info("a micro-batch of {} tokens takes {:.4f} s", tokens, last);
  }
  for (std::int64_t length = 1; length < packed_tokens; length *= 4) {
    packed_.push_back(make_probe(length, packed_tokens / length, false, model_.vocab_size));
  }
  const std::int64_t chunk = transformer_.options().loss_chunk_tokens;
  for (const Probe& probe : layers_) {
    if (probe.tokens() <= chunk) head_.push_back(make_probe(1, probe.tokens(), true, model_.vocab_size));
  }
}

LayerOverhead Profiler::overhead() const {
  const Probe& one_token = layers_.front();
  LayerOverhead overhead;
  overhead.layer_forward_s = rounded(over_layers(typical(empty_forward_)));
  overhead.layer_backward_s = rounded(std::max(0.0, over_layers(typical(empty_.whole)) - overhead.layer_forward_s));
  overhead.local_attention_forward_s = rounded(typical(one_token.attention_forward));
  overhead.local_attention_backward_s = rounded(typical(one_token.attention_backward));
  overhead.ring_step_forward_s = rounded(overhead.local_attention_forward_s + typical(merge_seconds_));
  overhead.ring_step_backward_s = rounded(overhead.local_attention_backward_s + typical(add_seconds_));
  return overhead;
}

double Profiler::head_seconds(std::size_t index) const {
  // Beyond a chunk of the head, more tokens are more chunks.
  const std::size_t measured = std::min(index, head_.size() - 1);
  const double seconds = typical(head_[measured].whole) - typical(layers_[measured].whole);
  return std::max(0.0, seconds) * static_cast<double>(layers_[index].tokens()) /
         static_cast<double>(head_[measured].tokens());
}

std::vector<LogLogCurve::Point> Profiler::linear_rates(const LayerOverhead& overhead) const {
  const ModelShape shape = model_.shape();
  const auto layers = static_cast<double>(model_.num_layers);
  const double flops_per_token =
      (1.0 + CostFactors::backward_linear) * (layers * shape.linear_flops_per_token() + shape.head_flops_per_token());
  const double fixed = overhead.layer_forward_s + overhead.layer_backward_s;
  std::vector<Timing> timings;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const double whole = over_layers(typical(layers_[i].whole));
    const auto tokens = static_cast<double>(layers_[i].tokens());
    timings.push_back({.at = tokens,
                       .flops = tokens * flops_per_token,
                       .growth = 1.0,
                       .seconds = layers * std::max(whole - fixed, whole / 2) + head_seconds(i)});
  }
  return rising_rates(std::move(timings));
}

std::vector<LogLogCurve::Point> Profiler::attention_rates(const LayerOverhead& overhead) const {
  const double flops_per_pair = (1.0 + CostFactors::backward_attention) * model_.shape().attention_flops_per_pair();
  const double fixed = overhead.local_attention_forward_s + overhead.local_attention_backward_s;
  std::vector<Timing> timings;
  const auto add = [&](const Probe& probe) {
    const auto length = static_cast<double>(probe.length);
    const double whole = probe.attention();
    timings.push_back({.at = length,
                       .flops = flops_per_pair * length * (length + 1.0) / 2.0,
                       .growth = (2.0 * length + 1.0) / (length + 1.0),
                       .seconds = std::max(whole - fixed, whole / 2) / static_cast<double>(probe.sequences)});
  };
  for (const Probe& probe : packed_) add(probe);
  for (const Probe& probe : layers_) {
    if (probe.length >= packed_tokens) add(probe);
  }
  return rising_rates(std::move(timings));
}

double Profiler::update_seconds_per_parameter() const {
  std::int64_t parameters = 0;
  for (int block = 0; block < table_.block_count(); ++block) parameters += table_.block_elements(block);
  return std::max(typical(update_) - typical(empty_.whole), 1e-9) / static_cast<double>(parameters);
}

HardwareProfile Profiler::profile(std::int64_t rounds) const {
  HardwareProfile profile;
  profile.overhead = overhead();
  const auto linear = linear_rates(profile.overhead);
  const auto attention = attention_rates(profile.overhead);
  profile.linear_peak_flops = constant_curve(model_.hidden_size, linear.back().value);
  profile.linear_efficiency = efficiencies(linear);
  profile.attention_peak_flops = constant_curve(model_.head_dim, attention.back().value);
  profile.attention_efficiency = efficiencies(attention);
  // The cost model: bfloat16 gradients through a reduce-scatter and a gather, 4 bytes a parameter.
  profile.gradient_sync = GradientSync{rounded(4.0 / update_seconds_per_parameter()), 1.0};
  const HardwareProfile typical_cluster = find_hardware_profile("cpu");
  const double copy_rate = static_cast<double>(copied_bytes) / typical(copy_seconds_);
  profile.intra_node = {rounded(copy_rate / 2), typical_cluster.intra_node.latency_s};
  profile.inter_node = typical_cluster.inter_node;

  const std::string how =
      fmt::format("{}, {}, {} rounds", device_.description(), name_of(options_.compute_dtype), rounds);
  const std::string merged = fmt::format("{} tokens", ring_shard_tokens);
  profile.sources = {
      {"linear.peak_flops_by_hidden",
       fmt::format(
           "measured: {}: forward and backward of a layer without attention, and of the head, weighed as in the "
           "model, {} tokens; other hidden sizes are taken to be as fast",
           how, layers_.back().tokens())},
      {"linear.efficiency", fmt::format("measured: {}: the same at fewer tokens", how)},
      {"attention.peak_flops_by_head_dim",
       fmt::format("measured: {}: forward and backward of one causal sequence of {} tokens; other head sizes are taken "
                   "to be as fast",
                   how, layers_.back().length)},
      {"attention.efficiency", fmt::format("measured: {}: the same for shorter sequences; below {} tokens as many of "
                                           "them as make {} tokens",
                                           how, packed_tokens, packed_tokens)},
      {"overhead.layer_forward_s", fmt::format("measured: {}: a layer of an empty micro-batch", how)},
      {"overhead.layer_backward_s", fmt::format("measured: {}: the same, backward", how)},
      {"overhead.local_attention_forward_s", fmt::format("measured: {}: attention of one token", how)},
      {"overhead.local_attention_backward_s", fmt::format("measured: {}: the same, backward", how)},
      {"overhead.ring_step_forward_s",
       fmt::format("measured: {}: attention of one token, and a merge by log-sum-exp of {}", how, merged)},
      {"overhead.ring_step_backward_s",
       fmt::format("measured: {}: the same, backward, with the addition of keys' and values' gradients of {}", how,
                   merged)},
      {"links.intra",
       fmt::format("assumed: a message through shared memory is copied in and out, each at the {:.1f} GB/s "
                   "measured for a copy; one rank has nobody to send to. Latency as in profile cpu",
                   copy_rate / 1e9)},
      {"links.inter", "assumed: as in profile cpu; one machine has no network to measure"},
      {"grad_sync", fmt::format("measured: {}: gradients set to zero, their norm, and AdamW, of one rank; what several "
                                "ranks add by summing gradients is not in it",
                                how)},
  };
  return profile;
}

ProfilerResult Profiler::run() {
  const Stopwatch watch;
  choose_probes();
  ProfilerResult result;
  while (result.rounds < least_rounds || watch.seconds() < options_.seconds) {
    for (std::vector<Probe>* probes : {&layers_, &packed_, &head_}) {
      for (Probe& probe : *probes) measure(probe);
    }
    measure_the_rest();
    ++result.rounds;
  }
  result.profile = profile(result.rounds);
  for (const Probe& probe : layers_) result.tokens.push_back(probe.tokens());
  result.seconds = watch.seconds();
  return result;
}

}  // namespace

ProfilerResult measure_hardware_profile(const Qwen2Config& model, const ProfilerOptions& options, Device& device) {
  return Profiler(model, options, device).run();
}

}  // namespace skrull
