#pragma once
// Generation of one sequence: the keys and values of the tokens so far.

#include <cstdint>
#include <vector>

#include "skrull/core/tensor.h"
#include "skrull/device/device.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/model/seams.h"

namespace skrull {

/// Attention of new tokens over all tokens of one sequence so far. Each micro-batch that goes through the model holds
/// the next tokens of that sequence (positions go on from filled()); their keys and values are appended.
class KvCache : public AttentionExecutor {
 public:
  /// For sequences of up to `capacity` tokens. `device` must outlive this.
  KvCache(const Qwen2Config& config, DType compute_dtype, std::int64_t capacity, Device& device);

  /// Forgets the sequence.
  void clear() { filled_ = 0; }
  /// Tokens that have gone through every layer.
  std::int64_t filled() const { return filled_; }
  std::int64_t capacity() const { return capacity_; }

  /// Throws RunFailure when the cache is full.
  void forward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out,
               TensorView lse) override;
  /// Throws RunFailure: a cache is for generation.
  void backward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView out,
                ConstTensorView lse, ConstTensorView dout, TensorView dq, TensorView dk, TensorView dv) override;

  static std::int64_t planned_bytes(const Qwen2Config& config, DType compute_dtype, std::int64_t capacity);

 private:
  struct Layer {
    Buffer keys;
    Buffer values;
  };

  Qwen2Config config_;
  DType dtype_;
  std::int64_t capacity_;
  Device* device_;
  std::vector<Layer> layers_;
  std::int64_t filled_ = 0;
};

}  // namespace skrull
