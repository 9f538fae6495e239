#pragma once
// Memory of one rank: linear in the tokens it holds, Memory(T) = fixed + bytes per token x T, from the model's sizes.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/core/dtype.h"
#include "skrull/schedule/model_shape.h"
#include "skrull/schedule/recompute.h"

namespace skrull {

/// How the training state lies on the ranks.
struct MemoryOptions {
  DType compute_dtype = DType::bfloat16;
  Recompute recompute = Recompute::selective;
  int zero_stage = 0;  ///< 1: optimizer state over all ranks; 2: gradients too; 3: parameters too; of one rank: 0
  bool optimizer_on_host = false;
  int world_size = 1;    ///< ranks that share the state
  int largest_ring = 1;  ///< ranks of the largest ring: a rank holds K and V of every hop
  bool tied_head = false;
  std::int64_t loss_chunk_tokens = 0;  ///< rows of logits at a time; 0: default_loss_chunk_tokens
};

/// Bytes of a rank that don't depend on its tokens. Of the rank whose parts are largest, rank 0: the parts of a block
/// differ by one element at most.
struct FixedBytes {
  std::int64_t parameters = 0;           ///< fp32 master weights and, for other dtypes, the copy that is computed with;
                                         ///< that copy alone where the optimizer is on the host
  std::int64_t gathered_parameters = 0;  ///< stage 3: whole blocks in use
  std::int64_t gradients = 0;            ///< fp32
  std::int64_t gradient_buffers = 0;     ///< stages 2 and 3: whole blocks in a backward
  std::int64_t optimizer_state = 0;
  std::int64_t activations = 0;  ///< RoPE's frequencies
  std::int64_t loss_head = 0;    ///< a chunk of logits; fewer tokens than a chunk take less

  std::int64_t state() const {
    return parameters + gathered_parameters + gradients + gradient_buffers + optimizer_state;
  }
  std::int64_t total() const { return state() + activations + loss_head; }
};

/// Bytes of each token that a rank holds in one micro-batch.
struct TokenBytes {
  std::int64_t activations = 0;  ///< of all layers, by recompute mode
  std::int64_t backward = 0;
  std::int64_t loss_head = 0;  ///< besides the chunk
  std::int64_t rings = 0;      ///< K and V of all hops, dK and dV on the way, fp32 partial results

  std::int64_t total() const { return activations + backward + loss_head + rings; }
};

/// A line of the memory table.
struct MemoryCategory {
  std::string name;  ///< as in the trainer's table
  std::int64_t bytes = 0;
};

/// The counts are those of the buffers that the trainer plans, exactly: weights with biases of query, key and value;
/// activations that the backward reads; gradients of one layer. Mode `none` adds the normed inputs and the MLP's inner
/// product of every layer.
class MemoryModel {
 public:
  MemoryModel(const ModelShape& model, const MemoryOptions& options);

  const FixedBytes& fixed() const { return fixed_; }
  const TokenBytes& per_token() const { return per_token_; }
  /// Of a rank in host memory: the optimizer, where it lies there. All else is of the device.
  std::int64_t host_bytes() const { return host_bytes_; }
  std::int64_t bytes(std::int64_t tokens) const;
  /// The same by category, those without bytes left out.
  std::vector<MemoryCategory> by_category(std::int64_t tokens) const;
  /// The most tokens of a rank with `memory_bytes`, of which 4% stay free for what is not planned (the
  /// allocator's gaps, libraries). At most 0 when not even the fixed part fits.
  std::int64_t most_tokens(std::int64_t memory_bytes) const;
  /// The same where the training state is allocated and `free_bytes` are left.
  std::int64_t most_tokens_beside_state(std::int64_t free_bytes) const {
    return most_tokens(free_bytes + fixed_.state());
  }

 private:
  std::int64_t loss_chunk_bytes(std::int64_t tokens) const;

  std::int64_t loss_chunk_tokens_;
  std::int64_t loss_row_bytes_;  ///< of the loss head, per token of the chunk
  FixedBytes fixed_;
  TokenBytes per_token_;
  std::int64_t host_bytes_;
};

/// Hops of a ring of `ranks` whose gradients of keys and values are on their way home at a time: at most 3. A rank has
/// room for so many in fp32, twice: of what arrived, and from other ranks. Room for all 7 hops of a ring of 8 would
/// gain little: by place_local_work()'s clock, where transfers take as long as work and there is no local work, a
/// bfloat16 backward takes 0.6% longer with 3 than with 7, with 2 it takes 13% longer (in fp32 12% and 25%); with as
/// much local work as four hops the difference is gone.
int ring_gradient_hops(int ranks);

/// Elements of all tensors of the model, biases and norm weights included.
std::int64_t parameter_count(const ModelShape& model, bool tied_head);

/// Rows of logits that the loss head holds at a time: about 256 MiB of fp32, at least 64. Every chunk streams the head
/// and its gradient through memory once; with a vocabulary of 151,936 and chunks of 64 MiB (110 rows) the head's
/// products reach three quarters of the rate they have with 256 MiB.
std::int64_t default_loss_chunk_tokens(std::int64_t vocab_size);

}  // namespace skrull
