#pragma once
// Attention of micro-batches whose sequences all lie whole on this rank.

#include <cstdint>
#include <vector>

#include "skrull/data/micro_batch.h"
#include "skrull/device/device.h"
#include "skrull/device/ops.h"
#include "skrull/model/seams.h"

namespace skrull {

/// One causal segment per sequence of the micro-batch.
class LocalAttention final : public AttentionExecutor {
 public:
  /// Allocates for micro-batches of up to `max_tokens`; `training` false: nothing, and backward() throws. `device` must
  /// outlive this.
  LocalAttention(AttentionShape shape, std::int64_t max_tokens, bool training, Device& device);

  /// Sets the sequences that forward() and backward() work on, until the next call. Throws RunFailure when they do not
  /// cover the packed buffer in order, or for more than max_tokens.
  void begin(const MicroBatch& batch);

  void forward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out,
               TensorView lse) override;
  void backward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView out,
                ConstTensorView lse, ConstTensorView dout, TensorView dq, TensorView dk, TensorView dv) override;

  /// Bytes the constructor allocates (category "activations").
  static std::int64_t planned_bytes(const AttentionShape& shape, std::int64_t max_tokens, bool training);

 private:
  void check_rows(ConstTensorView q) const;

  AttentionShape shape_;
  std::int64_t max_tokens_;
  Device& device_;
  Buffer delta_;  // [max_tokens, num_heads] fp32
  std::vector<AttentionSegment> segments_;
  std::int64_t tokens_ = 0;
};

}  // namespace skrull
