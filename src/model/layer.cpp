#include "layer.h"

namespace skrull {
namespace {

/// The parameter of layer 0, seen as the first `rows` x `cols` of what follows it in the block.
ParameterSpec fused(const ParameterTable& table, const std::string& name, std::int64_t rows, std::int64_t cols) {
  ParameterSpec parameter = table.find("model.layers.0." + name);
  parameter.rows = rows;
  parameter.cols = cols;
  return parameter;
}

/// Query, key and value columns of the fused projection.
template <class Void>
struct QueryKeyValue {
  QueryKeyValue(const BasicTensorView<Void>& qkv, const Qwen2Config& config)
      : q(qkv.slice_cols(0, config.query_size())),
        k(qkv.slice_cols(config.query_size(), config.key_value_size())),
        v(qkv.slice_cols(config.query_size() + config.key_value_size(), config.key_value_size())) {}
  BasicTensorView<Void> q, k, v;
};

/// The columns that RoPE turns: all heads of queries and keys.
TensorView rotated_columns(const TensorView& qkv, const Qwen2Config& config) {
  return qkv.slice_cols(0, config.query_size() + config.key_value_size());
}

/// Up to the gate and up projections: all that `kept` holds.
void fill_activations(const Compute& compute, std::int64_t layer, const LayerWeights& weights, const LayerInput& input,
                      const LayerActivations& kept, const Workspace& work, AttentionExecutor& attention) {
  auto& [ops, stream, config] = compute;
  const LayerScratch& scratch = work.scratch;
  const auto epsilon = static_cast<float>(config.rms_norm_eps);
  const ConstTensorView x = input.residual ? input.residual : kept.input;
  ops.rms_norm_forward(stream, x, input.delta, weights.input_norm, epsilon, kept.input, kept.normed_input,
                       kept.input_inverse_rms);
  project(compute, kept.normed_input, weights.qkv_weight, kept.qkv, weights.qkv_bias);
  ops.rope(stream, rotated_columns(kept.qkv, config), work.rope_table, config.head_dim, false);
  const QueryKeyValue<const void> heads(kept.qkv, config);
  attention.forward(layer, heads.q, heads.k, heads.v, kept.attention_out, kept.lse);
  project(compute, kept.attention_out, weights.output_weight, scratch.branch);
  ops.rms_norm_forward(stream, kept.input, scratch.branch, weights.middle_norm, epsilon, kept.middle,
                       kept.normed_middle, kept.middle_inverse_rms);
  project(compute, kept.normed_middle, weights.gate_up_weight, kept.gate_up);
}

/// `normed` as the forward left it: computed again, from the residual stream that was normed, where it was not kept.
void restore_normed(const Compute& compute, const ConstTensorView& x, const ConstTensorView& weight,
                    const TensorView& inverse_rms, const TensorView& normed, const Workspace& work) {
  if (work.keeps_all) return;
  compute.ops.rms_norm_forward(compute.stream, x, {}, weight, static_cast<float>(compute.config.rms_norm_eps), {},
                               normed, inverse_rms);
}

void mlp_backward(const Compute& compute, const LayerWeights& weights, const LayerGradients& gradients,
                  const LayerActivations& kept, const Workspace& work) {
  auto& [ops, stream, config] = compute;
  const BackwardBuffers& backward = work.backward;
  if (!work.keeps_all) ops.swiglu_forward(stream, kept.gate_up, kept.mlp);
  add_weight_gradient(compute, backward.dresidual, kept.mlp, gradients.down_weight);
  project_backward(compute, backward.dresidual, weights.down_weight, backward.dmlp);
  ops.swiglu_backward(stream, kept.gate_up, backward.dmlp, kept.gate_up);
  restore_normed(compute, kept.middle, weights.middle_norm, kept.middle_inverse_rms, kept.normed_middle, work);
  add_weight_gradient(compute, kept.gate_up, kept.normed_middle, gradients.gate_up_weight);
  const TensorView& dnormed = work.scratch.branch;
  project_backward(compute, kept.gate_up, weights.gate_up_weight, dnormed);
  ops.rms_norm_backward(stream, dnormed, kept.middle, weights.middle_norm, kept.middle_inverse_rms, backward.dresidual,
                        gradients.middle_norm);
}

void attention_backward(const Compute& compute, std::int64_t layer, const LayerWeights& weights,
                        const LayerGradients& gradients, const LayerActivations& kept, const Workspace& work,
                        AttentionExecutor& attention) {
  auto& [ops, stream, config] = compute;
  const BackwardBuffers& backward = work.backward;
  add_weight_gradient(compute, backward.dresidual, kept.attention_out, gradients.output_weight);
  project_backward(compute, backward.dresidual, weights.output_weight, backward.dattention);
  ops.fill_zero(stream, backward.dqkv);
  const QueryKeyValue<const void> heads(kept.qkv, config);
  const QueryKeyValue<void> dheads(backward.dqkv, config);
  attention.backward(layer, heads.q, heads.k, heads.v, kept.attention_out, kept.lse, backward.dattention, dheads.q,
                     dheads.k, dheads.v);
  ops.rope(stream, rotated_columns(backward.dqkv, config), work.rope_table, config.head_dim, true);
  ops.bias_backward(stream, backward.dqkv, gradients.qkv_bias);
  if (backward.dqkv_compute.data() != backward.dqkv.data()) ops.cast(stream, backward.dqkv, backward.dqkv_compute);
  restore_normed(compute, kept.input, weights.input_norm, kept.input_inverse_rms, kept.normed_input, work);
  add_weight_gradient(compute, backward.dqkv_compute, kept.normed_input, gradients.qkv_weight);
  const TensorView& dnormed = work.scratch.branch;
  project_backward(compute, backward.dqkv_compute, weights.qkv_weight, dnormed);
  ops.rms_norm_backward(stream, dnormed, kept.input, weights.input_norm, kept.input_inverse_rms, backward.dresidual,
                        gradients.input_norm);
}

}  // namespace

LayerSlices::LayerSlices(const ParameterTable& table, const Qwen2Config& config)
    : input_norm_(table.find("model.layers.0.input_layernorm.weight")),
      qkv_weight_(fused(table, "self_attn.q_proj.weight", config.qkv_size(), config.hidden_size)),
      qkv_bias_(fused(table, "self_attn.q_proj.bias", 1, config.qkv_size())),
      output_weight_(table.find("model.layers.0.self_attn.o_proj.weight")),
      middle_norm_(table.find("model.layers.0.post_attention_layernorm.weight")),
      gate_up_weight_(fused(table, "mlp.gate_proj.weight", 2 * config.intermediate_size, config.hidden_size)),
      down_weight_(table.find("model.layers.0.mlp.down_proj.weight")) {}

void layer_forward(const Compute& compute, std::int64_t layer, const LayerWeights& weights, const LayerInput& input,
                   const LayerActivations& kept, const Workspace& work, AttentionExecutor& attention) {
  fill_activations(compute, layer, weights, input, kept, work, attention);
  compute.ops.swiglu_forward(compute.stream, kept.gate_up, kept.mlp);
  project(compute, kept.mlp, weights.down_weight, work.scratch.branch);
}

void layer_recompute(const Compute& compute, std::int64_t layer, const LayerWeights& weights,
                     const LayerActivations& kept, const Workspace& work, AttentionExecutor& attention) {
  fill_activations(compute, layer, weights, {}, kept, work, attention);
}

void layer_backward(const Compute& compute, std::int64_t layer, const LayerWeights& weights,
                    const LayerGradients& gradients, const LayerActivations& kept, const Workspace& work,
                    AttentionExecutor& attention) {
  mlp_backward(compute, weights, gradients, kept, work);
  attention_backward(compute, layer, weights, gradients, kept, work, attention);
}

}  // namespace skrull
