#pragma once
// Attention of micro-batches whose sequences lie whole on this rank or in zigzag shards on rings of ranks.

#include <cstdint>
#include <vector>

#include "skrull/parallel/micro_batch_attention.h"
#include "skrull/parallel/ring_backward_order.h"
#include "skrull/parallel/ring_schedule.h"

namespace skrull {

/// Forward: all hops of keys and values are queued at once on the communication stream, a buffer each; meanwhile the
/// compute stream attends to local sequences and own shards, then joins what each hop brings in fp32 by its
/// log-sum-exp.
///
/// Backward: keys and values travel again. The fp32 gradients of what a hop brought go straight home to the rank whose
/// keys and values they are, which adds them in the order of the hops: no partial sum waits for another, and sums do
/// not depend on timing. Local sequences and own shards are computed in slices between the hops, and after the last
/// one while its gradients go home (order_backward()). Gradients of ring_gradient_hops() hops are on their way at a
/// time: a region of the outbox is written again when its send has left, one of the inbox when it has been added.
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
    TensorView outbox;       ///< [hops T, 2 nkv d] fp32 gradients of the arrivals, ring_gradient_hops() hops
    TensorView inbox;        ///< [hops T, 2 nkv d] fp32 gradients of the own shards, from other ranks
  };
  /// Gradients of the backward that are on their way home.
  struct Returns {
    std::vector<Event> events;  ///< by step: its gradients have left and those of the own shards are here
    std::size_t added = 0;      ///< steps whose gradients have been added
  };
  template <class Take>
  static Buffers lay_out(const MicroBatchAttentionOptions& options, int ranks, const Take& take);

  Timeline::Scope note(SpanKind kind, const char* name, std::size_t hop, SpanSequences sequences);
  void check_rows(ConstTensorView q) const;
  std::vector<Transfer> transfers(const std::vector<RowTransfer>& sends, const TensorView& from,
                                  const std::vector<RowTransfer>& receives, const TensorView& to) const;
  std::vector<Event> send_keys_and_values(ConstTensorView k, ConstTensorView v);
  void join_hops(const std::vector<Event>& arrivals, ConstTensorView q, TensorView sum, TensorView lse);
  void attend_in_slice(const AttentionBackward& packed, const std::vector<AttentionSegment>& segments);
  void attend_to_hop(AttentionBackward of_rings, const RingBackwardStep& step);
  void attend_backward(AttentionBackward attention, const std::vector<AttentionSegment>& segments);
  void add_returns(Returns& returns, std::size_t steps, TensorView dk, TensorView dv);

  MicroBatchAttentionOptions options_;
  Device& device_;
  Communicator& context_;
  std::vector<Buffer> memory_;
  Buffers buffers_;
  std::int64_t layer_ = 0;  ///< of the call
  RingSchedule schedule_;
  RingBackwardOrder backward_;
  std::vector<std::vector<Transfer>> key_value_exchanges_;  ///< per round
  std::vector<std::vector<Transfer>> gradient_exchanges_;   ///< per step of the backward
};

}  // namespace skrull
