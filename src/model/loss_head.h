#pragma once
// The loss over chunks of supervised rows: logits never exist for all tokens, and never for tokens without a label.

#include <cstdint>
#include <span>
#include <vector>

#include "layer.h"
#include "skrull/data/micro_batch.h"

namespace skrull {

/// The rows of a micro-batch that have a label, on the host.
struct SupervisedRows {
  explicit SupervisedRows(const MicroBatch& batch);
  std::int64_t count() const { return static_cast<std::int64_t>(rows.size()); }

  std::vector<std::int32_t> rows;  ///< ascending
  std::vector<std::int32_t> labels;
  std::vector<float> weights;
};

/// Where the backward of the head adds.
struct HeadGradients {
  TensorView dweight;  ///< [V, h] fp32, added to
  TensorView dhidden;  ///< [T, h] compute dtype, overwritten (0 for rows without a label)
};

/// Losses of the supervised rows into work.head.losses, unweighted, and with `gradients` the gradient of
/// sum weight x loss. hidden[T, h] is the final norm's output, weight[V, h] the head. `supervised` must stay alive
/// until the stream has passed.
void head_loss(const Compute& compute, Device& device, const ConstTensorView& hidden, const ConstTensorView& weight,
               const SupervisedRows& supervised, const HeadBuffers& head, const HeadGradients* gradients);

/// Logits of `rows` (alive until the stream has passed): logits[rows, V] fp32.
void head_logits(const Compute& compute, Device& device, const ConstTensorView& hidden, const ConstTensorView& weight,
                 std::span<const std::int32_t> rows, const HeadBuffers& head, const TensorView& logits);

}  // namespace skrull
