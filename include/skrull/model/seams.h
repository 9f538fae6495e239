#pragma once
// The three interfaces the model runs on. `parallel` implements them; the model knows neither ranks nor how anything is
// sharded.

#include <cstdint>

#include "skrull/core/tensor.h"
#include "skrull/device/ops.h"
#include "skrull/model/qwen2_config.h"

namespace skrull {

/// The model's attention: heads, head size, scores scaled by 1 / sqrt(head size).
AttentionShape attention_shape(const Qwen2Config& config);

/// Attention of one layer over the sequences of the current micro-batch. Work is queued on the device's compute stream.
class AttentionExecutor {
 public:
  virtual ~AttentionExecutor() = default;
  /// q[T, nq d], k, v[T, nkv d] after RoPE; writes out[T, nq d] (compute dtype) and lse[T, nq] (fp32).
  virtual void forward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out,
                       TensorView lse) = 0;
  /// dout in the compute dtype; ADDS into dq[T, nq d], dk, dv[T, nkv d], all fp32.
  virtual void backward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                        ConstTensorView out, ConstTensorView lse, ConstTensorView dout, TensorView dq, TensorView dk,
                        TensorView dv) = 0;
};

/// Parameters by block in the compute dtype: a flat 1 x n view, laid out by the ParameterTable, valid between acquire
/// and release. One block is held at a time. The forward acquires embedding, layers, final norm, head; the backward
/// then (the head being held already) final norm, layers from the last to the first, whatever the micro-batch holds.
class ParameterProvider {
 public:
  virtual ~ParameterProvider() = default;
  virtual ConstTensorView acquire(int block) = 0;
  virtual void release(int block) = 0;
};

/// Gradients by block: a flat 1 x n fp32 view that the backward ADDS into.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  virtual TensorView accumulator(int block) = 0;
  /// The backward of the current micro-batch adds nothing more to this block. Called once for every block: head
  /// (unless tied), final norm, layers from the last to the first, embedding.
  virtual void ready(int block) = 0;
};

}  // namespace skrull
