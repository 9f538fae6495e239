#pragma once
// Attention of micro-batches whose sequences lie whole on this rank or in zigzag shards on rings of ranks.

#include <cstdint>
#include <vector>

#include "skrull/parallel/micro_batch_attention.h"
#include "skrull/parallel/ring_schedule.h"

namespace skrull {

/// Forward: all hops of keys and values are queued at once on the communication stream, a buffer each; meanwhile the
/// compute stream attends to local sequences and own shards, then joins what each hop brings in fp32 by its
/// log-sum-exp.
///
/// Backward: keys and values travel again. The fp32 gradients of what a hop brought go straight home to the rank whose
/// keys and values they are, which adds them in the order of the hops: no partial sum waits for another, and sums do
/// not depend on timing.
///
/// schedule_rings() says why no plan can make ranks wait in a circle. Every rank of `context` must call forward() and
/// backward() for the same layers in the same order, with the micro-batches of the same plan.
class RingAttention final : public MicroBatchAttention {
 public:
  RingAttention(const MicroBatchAttentionOptions& options, Device& device, Communicator& context);

  void begin(const MicroBatch& batch) override;
  void forward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out,
               TensorView lse) override;
  void backward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView out,
                ConstTensorView lse, ConstTensorView dout, TensorView dq, TensorView dk, TensorView dv) override;

  /// Bytes the constructor allocates (categories "activations" and "ring buffers") on each of `ranks` ranks.
  static std::int64_t planned_bytes(const MicroBatchAttentionOptions& options, int ranks);

 private:
  struct Buffers {
    TensorView own;          ///< [T, 2 nkv d] keys, then values of the own shards
    TensorView arrivals;     ///< [(CP-1) T, 2 nkv d] those of other ranks
    TensorView sum_out;      ///< [T, nq d] fp32; empty when the output is fp32 itself
    TensorView partial_out;  ///< [T, nq d] fp32, of one hop
    TensorView partial_lse;  ///< [T, nq] fp32
    TensorView delta;        ///< [T, nq] fp32; this and the following for the backward
    TensorView outbox;       ///< [(CP-1) T, 2 nkv d] fp32 gradients of the arrivals
    TensorView inbox;        ///< [(CP-1) T, 2 nkv d] fp32 gradients of the own shards, from other ranks
  };
  template <class Take>
  static Buffers lay_out(const MicroBatchAttentionOptions& options, int ranks, const Take& take);

  void check_rows(ConstTensorView q) const;
  std::vector<Transfer> transfers(const std::vector<RowTransfer>& sends, const TensorView& from,
                                  const std::vector<RowTransfer>& receives, const TensorView& to) const;
  std::vector<Event> send_keys_and_values(ConstTensorView k, ConstTensorView v);
  void join_hops(const std::vector<Event>& arrivals, ConstTensorView q, TensorView sum, TensorView lse);
  void add_returned(const std::vector<Event>& returned, TensorView dk, TensorView dv);

  MicroBatchAttentionOptions options_;
  Device& device_;
  Communicator& context_;
  std::vector<Buffer> memory_;
  Buffers buffers_;
  RingSchedule schedule_;
  std::vector<std::vector<Transfer>> key_value_exchanges_;  ///< per round
  std::vector<std::vector<Transfer>> gradient_exchanges_;   ///< per round
};

}  // namespace skrull
