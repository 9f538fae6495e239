#pragma once
// One transformer layer: forward, and backward from what the forward kept.

#include "compute.h"
#include "skrull/core/tensor.h"
#include "skrull/model/parameter_table.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/model/seams.h"
#include "workspace.h"

namespace skrull {

/// A layer's weights, or their gradients, with the fused projections as one matrix each.
template <class Void>
struct LayerTensors {
  BasicTensorView<Void> input_norm;      ///< [1, h]
  BasicTensorView<Void> qkv_weight;      ///< [nq d + 2 nkv d, h]
  BasicTensorView<Void> qkv_bias;        ///< [1, nq d + 2 nkv d]
  BasicTensorView<Void> output_weight;   ///< [h, nq d]
  BasicTensorView<Void> middle_norm;     ///< [1, h]
  BasicTensorView<Void> gate_up_weight;  ///< [2 f, h]
  BasicTensorView<Void> down_weight;     ///< [h, f]
};
using LayerWeights = LayerTensors<const void>;
using LayerGradients = LayerTensors<void>;

/// Where the tensors lie in a layer's block; the same for all layers.
class LayerSlices {
 public:
  explicit LayerSlices(const ParameterTable& table, const Qwen2Config& config);

  template <class Void>
  LayerTensors<Void> of(const BasicTensorView<Void>& block) const {
    return {slice_parameter(block, input_norm_),  slice_parameter(block, qkv_weight_),
            slice_parameter(block, qkv_bias_),    slice_parameter(block, output_weight_),
            slice_parameter(block, middle_norm_), slice_parameter(block, gate_up_weight_),
            slice_parameter(block, down_weight_)};
  }

 private:
  ParameterSpec input_norm_, qkv_weight_, qkv_bias_, output_weight_, middle_norm_, gate_up_weight_, down_weight_;
};

/// What a layer's input is the sum of; both empty when it lies in LayerActivations::input already.
struct LayerInput {
  ConstTensorView residual;
  ConstTensorView delta;
};

/// Fills `kept`; afterwards the layer's output is the sum of kept.middle and scratch.branch.
void layer_forward(const Compute& compute, std::int64_t layer, const LayerWeights& weights, const LayerInput& input,
                   const LayerActivations& kept, const Workspace& work, AttentionExecutor& attention);

/// Fills `kept` again from kept.input, bit for bit.
void layer_recompute(const Compute& compute, std::int64_t layer, const LayerWeights& weights,
                     const LayerActivations& kept, const Workspace& work, AttentionExecutor& attention);

/// work.backward.dresidual: gradient of the layer's output on entry, of its input on return. Overwrites kept.gate_up.
void layer_backward(const Compute& compute, std::int64_t layer, const LayerWeights& weights,
                    const LayerGradients& gradients, const LayerActivations& kept, const Workspace& work,
                    AttentionExecutor& attention);

}  // namespace skrull
