#pragma once
// Attention of micro-batches whose sequences all lie whole on this rank.

#include <cstdint>
#include <vector>

#include "skrull/device/ops.h"
#include "skrull/parallel/micro_batch_attention.h"

namespace skrull {

/// One causal segment per sequence of the micro-batch.
class LocalAttention final : public MicroBatchAttention {
 public:
  /// Allocates for micro-batches of up to `max_tokens`; `training` false: nothing, and backward() throws. `device` must
  /// outlive this.
  LocalAttention(AttentionShape shape, std::int64_t max_tokens, bool training, Device& device);

  /// Also throws RunFailure for a micro-batch with rings.
  void begin(const MicroBatch& batch) override;

  void forward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out,
               TensorView lse) override;
  void backward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView out,
                ConstTensorView lse, ConstTensorView dout, TensorView dq, TensorView dk, TensorView dv) override;

  /// Bytes the constructor allocates (category "activations").
  static std::int64_t planned_bytes(const AttentionShape& shape, std::int64_t max_tokens, bool training);

 private:
  Timeline::Scope note(const char* name, std::int64_t layer);
  void check_rows(ConstTensorView q) const;

  AttentionShape shape_;
  std::int64_t max_tokens_;
  Device& device_;
  Buffer delta_;  // [max_tokens, num_heads] fp32
  std::vector<AttentionSegment> segments_;
  std::int64_t tokens_ = 0;
};

}  // namespace skrull
