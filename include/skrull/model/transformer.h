#pragma once
// Qwen2ForCausalLM: hand-written forward and backward over packed micro-batches.

#include <cstdint>
#include <memory>
#include <vector>

#include "skrull/core/tensor.h"
#include "skrull/data/micro_batch.h"
#include "skrull/device/device.h"
#include "skrull/model/parameter_table.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/model/seams.h"
#include "skrull/schedule/recompute.h"

namespace skrull {

struct TransformerOptions {
  DType compute_dtype = DType::float32;
  std::int64_t max_tokens = 0;                 ///< of the largest micro-batch: everything is allocated for it
  Recompute recompute = Recompute::selective;  ///< the same results bit for bit, in other memory and time
  std::int64_t loss_chunk_tokens =
      0;                 ///< rows of logits that exist at once; 0 = chosen by the vocabulary (about 256 MiB)
  bool training = true;  ///< false: no memory for the backward; forward_backward() throws
};

/// Sums over the tokens of one micro-batch, on the host in fp64.
struct LossSums {
  double weighted_loss = 0;  ///< sum of weight x cross-entropy: this rank's part of the step's loss
  double loss = 0;           ///< sum of cross-entropy over supervised tokens
  std::int64_t supervised_tokens = 0;
};

/// The losses of a micro-batch on their way from the device, so that the next one can be queued meanwhile.
class PendingLosses {
 public:
  struct OnHost;  ///< what the device writes to; goes after it has

  explicit PendingLosses(std::shared_ptr<const OnHost> on_host) : on_host_(std::move(on_host)) {}
  /// Waits for the device.
  LossSums sums() const;

 private:
  std::shared_ptr<const OnHost> on_host_;
};

/// One micro-batch at a time. All memory is allocated in the constructor, by category, from `options` (rule 8).
class Transformer {
 public:
  /// `device` must outlive this.
  Transformer(Qwen2Config config, TransformerOptions options, Device& device);
  ~Transformer();

  const Qwen2Config& config() const;
  const ParameterTable& parameters() const;
  const TransformerOptions& options() const;

  /// Forward, loss and backward: gradients of sum_t weights[t] CE_t are added through `gradients`. An empty micro-batch
  /// still acquires and readies every block. Throws InvalidInput for a token id or label outside the vocabulary,
  /// RunFailure for more than max_tokens. Work is queued: nothing here waits for the device, and `batch` is not used
  /// after the call.
  PendingLosses forward_backward(const MicroBatch& batch, ParameterProvider& parameters, AttentionExecutor& attention,
                                 GradientSink& gradients);
  /// Forward and loss only, by the same chunked head. Waits for the device.
  LossSums evaluate(const MicroBatch& batch, ParameterProvider& parameters, AttentionExecutor& attention);
  /// Forward; fp32 logits of the given packed rows, one row each of logits[rows.size(), V] (device memory).
  /// Synchronised on return.
  void logits(const MicroBatch& batch, const std::vector<std::int32_t>& rows, ParameterProvider& parameters,
              AttentionExecutor& attention, TensorView logits);

  /// Bytes the constructor will allocate, without allocating. By the same code that allocates.
  static std::int64_t planned_bytes(const Qwen2Config& config, const TransformerOptions& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skrull
