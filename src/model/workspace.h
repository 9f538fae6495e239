#pragma once
// Every buffer the model computes in, listed once: lay_out() plans, allocates and views them.

#include <string>
#include <vector>

#include "skrull/core/tensor.h"
#include "skrull/device/device.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/model/transformer.h"

namespace skrull {

/// What the backward of one layer reads. The normed inputs and the SwiGLU output cost one pass over memory each to
/// compute again, against 2 h + f numbers per token and layer to keep them: Recompute::none keeps them, otherwise all
/// layers share the scratch they lie in.
struct LayerActivations {
  TensorView input;               ///< [T, h] the residual stream
  TensorView input_inverse_rms;   ///< [1, T] fp32
  TensorView qkv;                 ///< [T, nq d + 2 nkv d] after RoPE
  TensorView attention_out;       ///< [T, nq d]
  TensorView lse;                 ///< [T, nq] fp32
  TensorView middle;              ///< [T, h] the residual stream after attention
  TensorView middle_inverse_rms;  ///< [1, T] fp32
  TensorView gate_up;             ///< [T, 2 f]; the backward overwrites it with its gradient
  TensorView normed_input;        ///< [T, h]
  TensorView normed_middle;       ///< [T, h]
  TensorView mlp;                 ///< [T, f] SwiGLU of gate_up
};

/// What layers hand on within the forward, and results that live for one operation or two.
struct LayerScratch {
  TensorView normed;  ///< [T, h]
  TensorView branch;  ///< [T, h] what attention or MLP add to the residual stream; in the backward a gradient
};

/// Empty when not training.
struct BackwardBuffers {
  TensorView dresidual;     ///< [T, h] of the residual stream
  TensorView dattention;    ///< [T, nq d]
  TensorView dmlp;          ///< [T, f]
  TensorView dqkv;          ///< [T, nq d + 2 nkv d] fp32: the sums of attention's backward
  TensorView dqkv_compute;  ///< the same in the compute dtype; in fp32 the same memory
};

/// One chunk of supervised rows (c of them), and what is known of all.
struct HeadBuffers {
  TensorView rows;     ///< [1, T] int32: packed rows, ascending
  TensorView labels;   ///< [1, T] int32
  TensorView weights;  ///< [1, T] fp32
  TensorView losses;   ///< [1, T] fp32
  TensorView hidden;   ///< [c, h]
  TensorView logits;   ///< [c, V] fp32
  TensorView dlogits;  ///< [c, V] compute dtype; in fp32 the same memory as the logits
  TensorView dhidden;  ///< [c, h]
};

struct Workspace {
  TensorView ids;                ///< [1, T] int32
  TensorView positions;          ///< [1, T] int32
  TensorView inverse_frequency;  ///< [1, d/2] fp32, filled once
  TensorView rope_table;         ///< [T, d] fp32
  std::vector<LayerActivations> layers;
  bool keeps_all = false;         ///< every layer has normed inputs and SwiGLU output of its own
  TensorView output;              ///< [T, h] the residual stream after the last layer
  TensorView output_inverse_rms;  ///< [1, T] fp32
  LayerScratch scratch;
  BackwardBuffers backward;
  HeadBuffers head;
};

/// The workspace for `tokens` rows. `take(category, dtype, rows, cols)` is called for every buffer, always in the same
/// order, and gives its view. `options` has its loss chunk chosen.
template <class Take>
Workspace lay_out(const Qwen2Config& config, const TransformerOptions& options, std::int64_t tokens, const Take& take) {
  const std::int64_t h = config.hidden_size;
  const DType compute = options.compute_dtype;
  const bool keep_layers = options.training && options.recompute != Recompute::full;
  const bool keep_inputs = options.training;
  const bool keep_all = options.training && options.recompute == Recompute::none;
  Workspace work;

  const auto activation = [&](DType dtype, std::int64_t rows, std::int64_t cols) {
    return take("activations", dtype, rows, cols);
  };
  work.ids = activation(DType::int32, 1, tokens);
  work.positions = activation(DType::int32, 1, tokens);
  work.inverse_frequency = activation(DType::float32, 1, config.head_dim / 2);
  work.rope_table = activation(DType::float32, tokens, config.head_dim);
  work.scratch.normed = activation(compute, tokens, h);
  work.scratch.branch = activation(compute, tokens, h);
  LayerActivations layer;
  layer.normed_input = layer.normed_middle = work.scratch.normed;
  work.keeps_all = keep_all;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const bool first = i == 0;
    if (first || keep_inputs) layer.input = activation(compute, tokens, h);
    if (first || keep_layers) {
      // Without a backward the residual stream is updated in place.
      layer.middle = keep_inputs ? activation(compute, tokens, h) : layer.input;
      layer.input_inverse_rms = activation(DType::float32, 1, tokens);
      layer.middle_inverse_rms = activation(DType::float32, 1, tokens);
      layer.qkv = activation(compute, tokens, config.qkv_size());
      layer.attention_out = activation(compute, tokens, config.query_size());
      layer.lse = activation(DType::float32, tokens, config.num_heads);
      layer.gate_up = activation(compute, tokens, 2 * config.intermediate_size);
    }
    if (first || keep_all) layer.mlp = activation(compute, tokens, config.intermediate_size);
    if (keep_all) {
      layer.normed_input = activation(compute, tokens, h);
      layer.normed_middle = activation(compute, tokens, h);
    }
    work.layers.push_back(layer);
  }
  work.output = keep_inputs ? activation(compute, tokens, h) : layer.input;
  work.output_inverse_rms = activation(DType::float32, 1, tokens);

  if (options.training) {
    const auto gradient = [&](DType dtype, std::int64_t cols) { return take("backward buffers", dtype, tokens, cols); };
    BackwardBuffers& backward = work.backward;
    backward.dresidual = gradient(compute, h);
    backward.dattention = gradient(compute, config.query_size());
    backward.dmlp = gradient(compute, config.intermediate_size);
    backward.dqkv = gradient(DType::float32, config.qkv_size());
    backward.dqkv_compute = compute == DType::float32 ? backward.dqkv : gradient(compute, config.qkv_size());
  }

  const auto loss_head = [&](DType dtype, std::int64_t rows, std::int64_t cols) {
    return take("loss head", dtype, rows, cols);
  };
  const std::int64_t chunk = options.loss_chunk_tokens;
  HeadBuffers& head = work.head;
  head.rows = loss_head(DType::int32, 1, tokens);
  head.labels = loss_head(DType::int32, 1, tokens);
  head.weights = loss_head(DType::float32, 1, tokens);
  head.losses = loss_head(DType::float32, 1, tokens);
  head.hidden = loss_head(compute, chunk, h);
  head.logits = loss_head(DType::float32, chunk, config.vocab_size);
  if (options.training) {
    head.dlogits = compute == DType::float32 ? head.logits : loss_head(compute, chunk, config.vocab_size);
    head.dhidden = loss_head(compute, chunk, h);
  }
  return work;
}

/// Checks the options and chooses the loss chunk where it is 0.
TransformerOptions complete_options(const Qwen2Config& config, TransformerOptions options);

/// Owns the buffers for options.max_tokens rows.
class WorkspaceBuffers {
 public:
  WorkspaceBuffers(const Qwen2Config& config, const TransformerOptions& options, Device& device);
  /// Views of tokens <= max_tokens rows.
  Workspace view(std::int64_t tokens) const;
  static std::int64_t planned_bytes(const Qwen2Config& config, const TransformerOptions& options);

 private:
  Qwen2Config config_;
  TransformerOptions options_;
  std::vector<Buffer> buffers_;
};

}  // namespace skrull
