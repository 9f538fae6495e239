#include "skrull/model/transformer.h"

#include <cmath>
#include <utility>

#include "layer.h"
#include "loss_head.h"
#include "skrull/core/error.h"
#include "workspace.h"

namespace skrull {
namespace {

/// Holds a block between acquire and release.
class AcquiredBlock {
 public:
  AcquiredBlock(ParameterProvider& provider, const ParameterTable& table, DType dtype, int block)
      : provider_(&provider), block_(block), view_(provider.acquire(block)) {
    require(view_.dtype() == dtype && view_.rows() == 1 && view_.cols() == table.block_elements(block),
            "block {} was given as {} x {} {}, expected 1 x {} {}", block, view_.rows(), view_.cols(),
            name_of(view_.dtype()), table.block_elements(block), name_of(dtype));
  }
  ~AcquiredBlock() {
    if (provider_ == nullptr) return;
    try {
      provider_->release(block_);
    } catch (...) {  // an error is on its way already
    }
  }
  AcquiredBlock(const AcquiredBlock&) = delete;
  AcquiredBlock& operator=(const AcquiredBlock&) = delete;

  const ConstTensorView& view() const { return view_; }
  void release() { std::exchange(provider_, nullptr)->release(block_); }

 private:
  ParameterProvider* provider_;
  int block_;
  ConstTensorView view_;
};

/// "sample 12, token 3 of it" of a packed row.
std::string describe_row(const MicroBatch& batch, std::int64_t row) {
  for (const PackedSequence& sequence : batch.local) {
    if (row >= sequence.begin && row < sequence.begin + sequence.length) {
      return fmt::format("sample {}, token {} of it", sequence.sample, row - sequence.begin);
    }
  }
  for (const Ring& ring : batch.rings) {
    for (const PackedShard& shard : ring.shards) {
      std::int64_t begin = shard.begin;
      for (const TokenRange& chunk : shard.chunks) {
        if (row >= begin && row < begin + chunk.length()) {
          return fmt::format("sample {}, token {} of it", shard.sample, chunk.begin + row - begin);
        }
        begin += chunk.length();
      }
    }
  }
  return fmt::format("packed row {}", row);
}

void check_batch(const MicroBatch& batch, const Qwen2Config& config, std::int64_t max_tokens) {
  const auto tokens = static_cast<std::size_t>(batch.tokens());
  require(batch.tokens() <= max_tokens, "a micro-batch of {} tokens; the model was made for {}", tokens, max_tokens);
  require(batch.positions.size() == tokens && batch.labels.size() == tokens && batch.weights.size() == tokens,
          "a micro-batch of {} ids, {} positions, {} labels, {} weights", tokens, batch.positions.size(),
          batch.labels.size(), batch.weights.size());
  for (std::size_t i = 0; i < tokens; ++i) {
    const auto row = static_cast<std::int64_t>(i);
    if (batch.ids[i] < 0 || batch.ids[i] >= config.vocab_size) {
      throw_invalid_input("{}: token id {} is outside the model's vocabulary of {}", describe_row(batch, row),
                          batch.ids[i], config.vocab_size);
    }
    if (batch.labels[i] != ignored_label && (batch.labels[i] < 0 || batch.labels[i] >= config.vocab_size)) {
      throw_invalid_input("{}: label {} is neither {} (ignored) nor in the model's vocabulary of {}",
                          describe_row(batch, row), batch.labels[i], ignored_label, config.vocab_size);
    }
    require(batch.positions[i] >= 0, "{}: position {}", describe_row(batch, row), batch.positions[i]);
  }
}

/// theta^(-2i/d) in fp32, rounded as transformers' Qwen2RotaryEmbedding rounds.
std::vector<float> inverse_frequencies(const Qwen2Config& config) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < config.head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(config.head_dim);
    frequencies.push_back(1.0F / std::pow(static_cast<float>(config.rope_theta), exponent));
  }
  return frequencies;
}

}  // namespace

struct PendingLosses::OnHost {
  std::vector<float> losses;
  std::vector<float> weights;
  Event copied;

  OnHost() = default;
  ~OnHost() {
    try {
      copied.synchronize();
    } catch (...) {  // whoever uses the stream next meets the error
    }
  }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
};

LossSums PendingLosses::sums() const {
  on_host_->copied.synchronize();
  LossSums sums;
  sums.supervised_tokens = static_cast<std::int64_t>(on_host_->losses.size());
  for (std::size_t i = 0; i < on_host_->losses.size(); ++i) {
    const auto loss = static_cast<double>(on_host_->losses[i]);
    sums.loss += loss;
    sums.weighted_loss += static_cast<double>(on_host_->weights[i]) * loss;
  }
  return sums;
}

struct Transformer::Impl {
  Impl(Qwen2Config the_config, const TransformerOptions& the_options, Device& the_device)
      : config(std::move(the_config)),
        options(complete_options(config, the_options)),
        device(the_device),
        table(config),
        slices(table, config),
        buffers(config, options, device) {
    const std::vector<float> frequencies = inverse_frequencies(config);
    device.copy_to_device(device.compute_stream(), buffers.view(0).inverse_frequency, frequencies.data());
    device.compute_stream().synchronize();
  }

  AcquiredBlock acquire(ParameterProvider& parameters, int block) const {
    return {parameters, table, options.compute_dtype, block};
  }
  TensorView accumulator(GradientSink& gradients, int block) const {
    const TensorView view = gradients.accumulator(block);
    require(view.dtype() == DType::float32 && view.rows() == 1 && view.cols() == table.block_elements(block),
            "the gradient of block {} was given as {} x {} {}, expected 1 x {} float32", block, view.rows(),
            view.cols(), name_of(view.dtype()), table.block_elements(block));
    return view;
  }
  Timeline::Scope note(const char* name, std::int64_t layer = -1) const {
    return device.timeline().scope(SpanKind::compute, compute.stream, {name, layer});
  }
  /// A block that is one matrix of vocabulary x hidden size.
  template <class Void>
  BasicTensorView<Void> as_vocabulary_matrix(const BasicTensorView<Void>& block) const {
    return block.reshape(config.vocab_size, config.hidden_size);
  }

  /// Up to the final norm, whose output is in work.scratch.normed.
  void forward(const MicroBatch& batch, const Workspace& work, ParameterProvider& parameters,
               AttentionExecutor& attention);
  void embed(const MicroBatch& batch, const Workspace& work, ParameterProvider& parameters);
  /// Loss of the head, and with `gradients` the gradients of head and final norm; work.backward.dresidual is then the
  /// gradient of the last layer's output.
  void loss(const Workspace& work, const SupervisedRows& supervised, ParameterProvider& parameters,
            GradientSink* gradients);
  void backward(const Workspace& work, ParameterProvider& parameters, AttentionExecutor& attention,
                GradientSink& gradients);
  PendingLosses run(const MicroBatch& batch, ParameterProvider& parameters, AttentionExecutor& attention,
                    GradientSink* gradients);
  PendingLosses fetch_losses(const Workspace& work, SupervisedRows supervised);

  Qwen2Config config;
  TransformerOptions options;
  Device& device;
  ParameterTable table;
  LayerSlices slices;
  WorkspaceBuffers buffers;
  Compute compute{device.ops(), device.compute_stream(), config};
};

void Transformer::Impl::embed(const MicroBatch& batch, const Workspace& work, ParameterProvider& parameters) {
  Ops& ops = compute.ops;
  Stream& stream = compute.stream;
  device.copy_to_device(stream, work.ids, batch.ids.data());
  device.copy_to_device(stream, work.positions, batch.positions.data());
  ops.rope_table(stream, work.positions, work.inverse_frequency, work.rope_table);
  AcquiredBlock block = acquire(parameters, table.embedding_block());
  ops.embedding_forward(stream, work.ids, as_vocabulary_matrix(block.view()), work.layers.front().input);
  block.release();
}

void Transformer::Impl::forward(const MicroBatch& batch, const Workspace& work, ParameterProvider& parameters,
                                AttentionExecutor& attention) {
  embed(batch, work, parameters);
  LayerInput input;
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerActivations& kept = work.layers[static_cast<std::size_t>(layer)];
    AcquiredBlock block = acquire(parameters, table.layer_block(layer));
    const auto span = note("layer forward", layer);
    layer_forward(compute, layer, slices.of(block.view()), input, kept, work, attention);
    block.release();
    input = {kept.middle, work.scratch.branch};
  }
  AcquiredBlock norm = acquire(parameters, table.final_norm_block());
  compute.ops.rms_norm_forward(compute.stream, input.residual, input.delta, norm.view(),
                               static_cast<float>(config.rms_norm_eps), work.output, work.scratch.normed,
                               work.output_inverse_rms);
  norm.release();
}

void Transformer::Impl::loss(const Workspace& work, const SupervisedRows& supervised, ParameterProvider& parameters,
                             GradientSink* gradients) {
  Ops& ops = compute.ops;
  Stream& stream = compute.stream;
  const auto span = note("head and loss");
  AcquiredBlock head = acquire(parameters, table.head_block());
  if (gradients == nullptr) {
    head_loss(compute, device, work.scratch.normed, as_vocabulary_matrix(head.view()), supervised, work.head, nullptr);
    head.release();
    return;
  }
  const HeadGradients head_gradients = {as_vocabulary_matrix(accumulator(*gradients, table.head_block())),
                                        work.scratch.branch};
  head_loss(compute, device, work.scratch.normed, as_vocabulary_matrix(head.view()), supervised, work.head,
            &head_gradients);
  head.release();
  if (table.head_block() != table.embedding_block()) gradients->ready(table.head_block());

  AcquiredBlock norm = acquire(parameters, table.final_norm_block());
  ops.fill_zero(stream, work.backward.dresidual);
  ops.rms_norm_backward(stream, head_gradients.dhidden, work.output, norm.view(), work.output_inverse_rms,
                        work.backward.dresidual, accumulator(*gradients, table.final_norm_block()));
  norm.release();
  gradients->ready(table.final_norm_block());
}

void Transformer::Impl::backward(const Workspace& work, ParameterProvider& parameters, AttentionExecutor& attention,
                                 GradientSink& gradients) {
  for (std::int64_t layer = config.num_layers - 1; layer >= 0; --layer) {
    const LayerActivations& kept = work.layers[static_cast<std::size_t>(layer)];
    const int index = table.layer_block(layer);
    AcquiredBlock block = acquire(parameters, index);
    const LayerWeights weights = slices.of(block.view());
    if (options.recompute == Recompute::full) {
      const auto span = note("layer forward again", layer);
      layer_recompute(compute, layer, weights, kept, work, attention);
    }
    {
      const auto span = note("layer backward", layer);
      layer_backward(compute, layer, weights, slices.of(accumulator(gradients, index)), kept, work, attention);
    }
    block.release();
    gradients.ready(index);
  }
  compute.ops.embedding_backward(compute.stream, work.ids, work.backward.dresidual,
                                 as_vocabulary_matrix(accumulator(gradients, table.embedding_block())));
  gradients.ready(table.embedding_block());
}

PendingLosses Transformer::Impl::fetch_losses(const Workspace& work, SupervisedRows supervised) {
  auto on_host = std::make_shared<PendingLosses::OnHost>();
  on_host->losses.resize(supervised.rows.size());
  device.copy_to_host(compute.stream, on_host->losses.data(), work.head.losses.slice_cols(0, supervised.count()));
  on_host->weights = std::move(supervised.weights);
  on_host->copied = compute.stream.record();
  return PendingLosses(std::move(on_host));
}

PendingLosses Transformer::Impl::run(const MicroBatch& batch, ParameterProvider& parameters,
                                     AttentionExecutor& attention, GradientSink* gradients) {
  check_batch(batch, config, options.max_tokens);
  const Workspace work = buffers.view(batch.tokens());
  SupervisedRows supervised(batch);
  forward(batch, work, parameters, attention);
  loss(work, supervised, parameters, gradients);
  if (gradients != nullptr) backward(work, parameters, attention, *gradients);
  return fetch_losses(work, std::move(supervised));
}

Transformer::Transformer(Qwen2Config config, TransformerOptions options, Device& device)
    : impl_(std::make_unique<Impl>(std::move(config), options, device)) {}
Transformer::~Transformer() = default;

const Qwen2Config& Transformer::config() const {
  return impl_->config;
}
const ParameterTable& Transformer::parameters() const {
  return impl_->table;
}
const TransformerOptions& Transformer::options() const {
  return impl_->options;
}

PendingLosses Transformer::forward_backward(const MicroBatch& batch, ParameterProvider& parameters,
                                            AttentionExecutor& attention, GradientSink& gradients) {
  require(impl_->options.training, "this model was made without memory for a backward");
  return impl_->run(batch, parameters, attention, &gradients);
}

LossSums Transformer::evaluate(const MicroBatch& batch, ParameterProvider& parameters, AttentionExecutor& attention) {
  return impl_->run(batch, parameters, attention, nullptr).sums();
}

void Transformer::logits(const MicroBatch& batch, const std::vector<std::int32_t>& rows, ParameterProvider& parameters,
                         AttentionExecutor& attention, TensorView logits) {
  Impl& model = *impl_;
  check_batch(batch, model.config, model.options.max_tokens);
  const auto count = static_cast<std::int64_t>(rows.size());
  require(count <= batch.tokens(), "logits of {} rows of a micro-batch of {} tokens", count, batch.tokens());
  for (const std::int32_t row : rows) {
    require(row >= 0 && row < batch.tokens(), "logits of row {} of {}", row, batch.tokens());
  }
  require(logits.dtype() == DType::float32 && logits.rows() == count && logits.cols() == model.config.vocab_size,
          "logits of {} rows into {} x {} {}, expected x {} float32", count, logits.rows(), logits.cols(),
          name_of(logits.dtype()), model.config.vocab_size);
  const Workspace work = model.buffers.view(batch.tokens());
  model.forward(batch, work, parameters, attention);
  AcquiredBlock head = model.acquire(parameters, model.table.head_block());
  head_logits(model.compute, model.device, work.scratch.normed, model.as_vocabulary_matrix(head.view()), rows,
              work.head, logits);
  head.release();
  model.compute.stream.synchronize();
}

std::int64_t Transformer::planned_bytes(const Qwen2Config& config, const TransformerOptions& options) {
  return WorkspaceBuffers::planned_bytes(config, complete_options(config, options));
}

}  // namespace skrull
