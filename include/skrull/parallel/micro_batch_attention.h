#pragma once
// The attention of training and evaluation: told the micro-batch, it knows where sequences end and who holds them.

#include <cstdint>
#include <memory>

#include "skrull/comm/communicator.h"
#include "skrull/data/micro_batch.h"
#include "skrull/device/device.h"
#include "skrull/model/seams.h"

namespace skrull {

class MicroBatchAttention : public AttentionExecutor {
 public:
  /// Sets the micro-batch that forward() and backward() work on, until the next call. Throws RunFailure when its
  /// sequences do not cover the packed buffer in order, or for more tokens than memory was planned for.
  virtual void begin(const MicroBatch& batch) = 0;
};

struct MicroBatchAttentionOptions {
  AttentionShape shape;
  DType compute_dtype = DType::float32;
  std::int64_t max_tokens = 0;  ///< of the largest micro-batch: everything is allocated for it
  bool training = true;         ///< false: no memory for the backward, which throws
};

/// `context` spans the ranks of this rank's replica in the order of their context rank; with one rank sequences are
/// whole, with more they may lie on rings. `device` and `context` must outlive the result.
std::unique_ptr<MicroBatchAttention> make_micro_batch_attention(const MicroBatchAttentionOptions& options,
                                                                Device& device, Communicator& context);

}  // namespace skrull
