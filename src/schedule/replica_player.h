#pragma once
// The streams of one replica's ranks: plays the kernels and hops of a micro-batch layer by layer. The rules are those
// at the head of simulator.h.

#include <vector>

#include "skrull/schedule/simulator.h"
#include "step_work.h"

namespace skrull {

/// What is played at once: one pass over a layer, or the head.
struct Block {
  std::int32_t micro_batch = 0;
  std::int32_t layer = 0;
  Pass pass = Pass::forward;
};

class ReplicaPlayer {
 public:
  /// `spans` (may be null) receives every kernel and hop.
  ReplicaPlayer(int replica, const Plan& plan, const CostModel& cost, std::vector<Span>* spans);

  void begin_micro_batch(std::size_t micro_batch);
  void play(const Block& block);
  /// With `wait`, all ranks go on when the last one has done.
  void end_micro_batch(bool wait);

  /// No rank computes before `seconds`.
  void hold_until(double seconds);
  /// When the last rank has done what it was given.
  double latest() const;

  std::vector<SimulatedMicroBatch> take_micro_batches() { return std::move(done_); }

 private:
  void layer_forward();
  void layer_backward();
  /// Ring `index` of the backward, all its steps and its way home.
  void ring_backward(std::size_t index);
  /// Gives compute stream `rank` one kernel.
  void compute(std::size_t rank, Activity activity, double seconds, std::size_t ring = none, std::size_t step = 0);
  /// The own shard of the next ring of `rank` that has not had it in this backward.
  void compute_next_own_shard(std::size_t rank);
  /// Lets `rank` wait until `seconds`, which it uses for kernels that need no message.
  void wait_usefully(std::size_t rank, double seconds);
  /// A hop between all neighbours of a ring; position p is ready to send at ready_[p]. Arrivals go to arrived_.
  void hop(std::size_t ring, std::size_t step, double seconds);
  void record(std::size_t rank, Activity activity, double begin, double end, std::size_t ring, std::size_t step);

  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  int replica_;
  const Plan& plan_;
  const CostModel& cost_;
  std::vector<Span>* spans_;

  std::vector<double> compute_;        ///< [rank] when its compute stream has done all it was given
  std::vector<double> communication_;  ///< [rank] the same of its communication stream
  MicroBatchKernels kernels_;
  Block block_;
  SimulatedMicroBatch current_;
  std::vector<SimulatedMicroBatch> done_;

  // Of the layer that is being played.
  std::vector<double> local_left_;                 ///< [rank] seconds of local attention still to do
  std::vector<std::size_t> own_shards_;            ///< [rank] seats whose own shard is done
  std::vector<std::vector<double>> step_ends_[2];  ///< [step mod 2][ring][position]
  std::vector<double> home_;                       ///< [rank] when its dK and dV are home
  std::vector<double> ready_;                      ///< [position]
  std::vector<double> arrived_;                    ///< [position]
};

}  // namespace skrull
