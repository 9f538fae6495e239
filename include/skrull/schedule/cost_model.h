#pragma once
// Predicted time of what a rank does in a micro-batch. Pure arithmetic on a model's shape and a hardware profile.
//
// Seconds of one rank in one micro-batch, with t tokens resident on it:
//   linear_f(t)    t x FLOPs per token and layer / (linear peak x efficiency(t));  backward 2x
//   head_f(t)      the same with 2 h V FLOPs, once; forward and backward 3x
//   attention_f(S) 4 nq d S(S+1)/2 / (attention peak x efficiency(S)) of one local sequence;  backward 2.5x
//   ring           all distributed sequences of the micro-batch with the same ranks: they share one kernel per step and
//                  one message per hop. At a ring position of r, with F the sum of its shards' attention_f:
//                    comp_f = F + r ring_step_forward,  comp_b = 2.5 F + r ring_step_backward
//                    B      = sum over sequences of the largest shard x 2 nkv d x 2 bytes (K and V in bf16)
//                    hop_f  = latency + B / bandwidth,  hop_b = latency + 3B / bandwidth (K, V and fp32 dK, dV)
//                    exposed_f = (r-1) max(0, hop_f - comp_f / r)
//                    exposed_b = (r-1) max(0, hop_b - comp_b / r) + latency + 2B / bandwidth  (dK, dV go home)
//   layer_f        max(sum of exposed_f, local_f) + sum of comp_f + linear_f(t) + layer_forward
//   layer_b        max(sum of exposed_b, local_b) + sum of comp_b + 2 linear_f(t) + layer_backward
//                  local_f = sum of attention_f + local_attention_forward where the rank has local sequences
//   rank           layers x (layer_f + layer_b) + 3 head_f(t);  full recompute adds one more layer_f per layer
// A micro-batch lasts as long as its slowest rank, a replica as long as the sum of its micro-batches, a step as long as
// its slowest replica.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "skrull/schedule/hardware_profile.h"
#include "skrull/schedule/model_shape.h"
#include "skrull/schedule/plan.h"
#include "skrull/schedule/recompute.h"

namespace skrull {

/// `exact`: the FLOPs above. `paper`: those of the Skrull paper, 20 h^2 + 4 h h_kv per token and layer and 4 h S^2 of
/// attention, that is an MLP of 8h/3 and no causal halving; for comparison only.
enum class FlopsModel { exact, paper };

/// Factors of the formulas above that hold for every model and machine.
struct CostFactors {
  static constexpr double backward_linear = 2.0;  ///< times the forward
  static constexpr double backward_attention = 2.5;
  static constexpr double backward_hop = 3.0;  ///< bytes of bf16 K, V with fp32 dK, dV, over those of K and V
  static constexpr double homeward_hop = 2.0;  ///< fp32 dK, dV alone
};

enum class Link { intra_node, inter_node };

/// What one ring adds to one of its ranks.
struct RingLoad {
  int size = 0;                    ///< ranks of the ring
  double attention_forward = 0.0;  ///< seconds of this position in one layer, over all sequences of the ring
  double hop_bytes = 0.0;          ///< K and V of one hop
  Link link = Link::intra_node;
};

/// Seconds of one layer that a rank spends on its rings; the rings of a rank add up.
struct RingTime {
  double compute_forward = 0.0;
  double compute_backward = 0.0;
  double exposed_forward = 0.0;  ///< what of the hops the ring's own kernels don't hide
  double exposed_backward = 0.0;

  RingTime& operator+=(const RingTime& other) {
    compute_forward += other.compute_forward;
    compute_backward += other.compute_backward;
    exposed_forward += other.exposed_forward;
    exposed_backward += other.exposed_backward;
    return *this;
  }
  RingTime& operator-=(const RingTime& other) {
    compute_forward -= other.compute_forward;
    compute_backward -= other.compute_backward;
    exposed_forward -= other.exposed_forward;
    exposed_backward -= other.exposed_backward;
    return *this;
  }
};

/// Seconds of one layer's hops of a ring, the same for all its ranks.
struct RingHops {
  double count = 0.0;  ///< r - 1
  double forward = 0.0;
  double backward = 0.0;
  double homeward = 0.0;
};

/// Where a rank's time in a micro-batch goes, in seconds over all layers, forward and backward together.
struct RankTime {
  double total = 0.0;
  double linear = 0.0;            ///< matrix products of layers and head
  double local_attention = 0.0;   ///< kernels of local sequences, with their fixed cost
  double ring_attention = 0.0;    ///< kernels of ring steps, with their fixed cost
  double fixed = 0.0;             ///< per layer and micro-batch
  double transfer = 0.0;          ///< ring hops on the wire
  double exposed_transfer = 0.0;  ///< what of them neither ring nor local kernels hide
};

class CostModel {
 public:
  /// Recomputation `none` and `selective` cost the same time: what the latter computes again takes a pass over memory
  /// each, which profiles, measured in that mode, hold in the fixed time of a layer's backward.
  CostModel(const ModelShape& model, const HardwareProfile& profile, Recompute recompute = Recompute::selective,
            FlopsModel flops = FlopsModel::exact);

  const ModelShape& model() const { return model_; }
  const HardwareProfile& profile() const { return profile_; }
  Recompute recompute() const { return recompute_; }
  FlopsModel flops_model() const { return flops_; }

  /// Forward seconds of one layer's matrix products on `tokens` tokens.
  double linear_forward(std::int64_t tokens) const;
  /// Forward seconds of the head.
  double head_forward(std::int64_t tokens) const;
  /// Seconds of all layers' and the head's matrix products, forward and backward.
  double linear_seconds(std::int64_t tokens) const {
    const auto index = static_cast<std::size_t>(tokens);
    return index < linear_seconds_.size() ? linear_seconds_[index]
                                          : compute_linear_seconds(static_cast<double>(tokens));
  }
  /// The same per token: what a token costs on a rank that computes `tokens` >= 1 at once.
  double linear_seconds_per_token(std::int64_t tokens) const {
    return linear_seconds(tokens) / static_cast<double>(tokens);
  }
  /// Forward seconds of one layer's attention of ring position `position` (a ring of 1: the whole sequence).
  double attention_forward(std::int64_t length, int ring_size, int position) const;
  /// The same of every position at once: cheaper than one by one.
  void attention_forward(std::int64_t length, int ring_size, std::span<double> per_position) const;
  /// Seconds of attention over all layers and positions, forward and backward, without fixed costs.
  double attention_work(std::int64_t length, int ring_size) const;
  /// K and V bytes of one hop of one sequence.
  double hop_bytes(std::int64_t length, int ring_size) const;
  /// Fixed seconds of a micro-batch, which every rank of a replica pays.
  double micro_batch_overhead() const { return micro_batch_overhead_; }
  /// Exposed part of the gradients' synchronisation, the same for every plan.
  double gradient_sync_seconds() const { return gradient_sync_; }
  /// Weight of local or ring attention's forward seconds in the rank's total: layers x (forward passes + 2.5).
  double attention_weight() const { return layers_ * (forward_passes_ + 2.5); }

  /// The hops of a ring on which K and V of one hop have `hop_bytes`.
  RingHops ring_hops(int ring_size, double hop_bytes, Link link) const {
    const LinkRate& rate = link == Link::intra_node ? profile_.intra_node : profile_.inter_node;
    return {ring_size - 1.0, rate.seconds(hop_bytes), rate.seconds(CostFactors::backward_hop * hop_bytes),
            rate.seconds(CostFactors::homeward_hop * hop_bytes)};
  }
  /// Seconds of one layer of one ring on one of its ranks, with the attention_forward of that position.
  RingTime ring_time(const RingHops& hops, double attention_forward) const {
    const double size = hops.count + 1.0;
    RingTime time;
    time.compute_forward = attention_forward + size * profile_.overhead.ring_step_forward_s;
    time.compute_backward =
        CostFactors::backward_attention * attention_forward + size * profile_.overhead.ring_step_backward_s;
    time.exposed_forward = hops.count * std::max(0.0, hops.forward - time.compute_forward / size);
    time.exposed_backward = hops.count * std::max(0.0, hops.backward - time.compute_backward / size) + hops.homeward;
    return time;
  }

  /// Seconds of one rank in one micro-batch. `linear` is linear_seconds of its tokens, `local_forward` the sum of
  /// attention_forward of its local sequences, `rings` the sum over its rings.
  double rank_seconds(double linear, bool has_local, double local_forward, const RingTime& rings) const {
    const LayerOverhead& overhead = profile_.overhead;
    const double local_f = has_local ? local_forward + overhead.local_attention_forward_s : 0.0;
    const double local_b =
        has_local ? CostFactors::backward_attention * local_forward + overhead.local_attention_backward_s : 0.0;
    const double forward = std::max(rings.exposed_forward, local_f) + rings.compute_forward;
    const double backward = std::max(rings.exposed_backward, local_b) + rings.compute_backward;
    return micro_batch_overhead_ + linear + layers_ * (forward_passes_ * forward + backward);
  }
  /// The same with its parts.
  RankTime rank_time(std::int64_t tokens, bool has_local, double local_forward, std::span<const RingLoad> rings) const;

  /// Slowest rank's seconds when the sequence is alone in its micro-batch on a ring of `ring_size` over `link`.
  double seconds_alone(std::int64_t length, int ring_size, Link link) const;

  /// FLOPs of one rank: all layers and the head, forward, backward and recompute.
  double flops(std::int64_t tokens, std::int64_t causal_area) const;

  /// Forward passes of a layer in a step: 1, or 2 with full recompute.
  int forward_passes() const { return static_cast<int>(forward_passes_); }

 private:
  double attention_seconds(double pairs, std::int64_t tokens) const;
  double compute_linear_seconds(double tokens) const;

  ModelShape model_;
  HardwareProfile profile_;
  Recompute recompute_;
  FlopsModel flops_;
  double layers_ = 0.0;
  double forward_passes_ = 1.0;
  double linear_rate_ = 0.0;  ///< FLOP/s at full efficiency
  double attention_rate_ = 0.0;
  double linear_flops_ = 0.0;     ///< per token and layer, forward
  double attention_flops_ = 0.0;  ///< per query-key pair and layer, forward
  double micro_batch_overhead_ = 0.0;
  double gradient_sync_ = 0.0;
  std::vector<double> linear_seconds_;  ///< of 0, 1, .. tokens, as far as the efficiency rises
};

/// The link of a ring of replica `replica`: inter_node when any hop, the closing one included, crosses a node.
Link ring_link(std::span<const int> ranks, int replica, const Topology& topology);

/// One rank in one micro-batch of a plan.
struct RankLoad {
  std::int64_t tokens = 0;
  std::int64_t causal_area = 0;  ///< query-key pairs
  double hop_bytes = 0.0;        ///< ring bytes this rank sends in the micro-batch, forward and backward
  RankTime time;
};

/// A plan under a cost model.
struct PlanCost {
  double schedule_seconds = 0.0;  ///< slowest replica
  double step_seconds = 0.0;      ///< with the exposed gradient synchronisation
  std::vector<double> replica_seconds;
  std::vector<std::vector<double>> micro_batch_seconds;        ///< [replica][micro-batch]
  std::vector<std::vector<std::vector<RankLoad>>> rank_loads;  ///< [replica][micro-batch][rank]
  std::int64_t distributed_sequences = 0;
  std::int64_t peak_tokens = 0;  ///< of a rank in a micro-batch
  double hidden_share = 1.0;     ///< of the rings' transfer time; 1 without rings
};

/// Seconds, tokens and bytes of a valid plan under the formulas above.
PlanCost evaluate_plan(const Plan& plan, const CostModel& cost);

/// evaluate_plan's schedule_seconds.
double schedule_seconds(const Plan& plan, const CostModel& cost);

}  // namespace skrull
