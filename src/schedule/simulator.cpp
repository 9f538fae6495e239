#include "skrull/schedule/simulator.h"

#include <algorithm>
#include <array>

#include "replica_player.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

/// Collectives over all ranks of all replicas, one after the other on a stream of their own.
class CollectiveStream {
 public:
  CollectiveStream(const CostModel& cost, bool record) : record_(record) {
    if (cost.profile().gradient_sync) seconds_per_byte_ = 1.0 / cost.profile().gradient_sync->bus_bytes_per_s;
    layer_bytes_ = bf16_bytes * cost.model().layer_parameters();
    embedding_bytes_ = bf16_bytes * cost.model().embedding_parameters();
  }

  /// Starts when the last rank has come, at `ready`; when it ends. Layer -1: embedding and head.
  double run(CollectiveSpan::Kind kind, std::int32_t micro_batch, std::int32_t layer, double ready) {
    const double begin = std::max(ready, end_);
    end_ = begin + (layer < 0 ? embedding_bytes_ : layer_bytes_) * seconds_per_byte_;
    if (record_) spans_.push_back({begin, end_, micro_batch, layer, kind});
    return end_;
  }

  std::vector<CollectiveSpan> take_spans() { return std::move(spans_); }

 private:
  static constexpr double bf16_bytes = 2.0;

  bool record_;
  double seconds_per_byte_ = 0.0;
  double layer_bytes_ = 0.0;
  double embedding_bytes_ = 0.0;
  double end_ = 0.0;
  std::vector<CollectiveSpan> spans_;
};

class StepPlayer {
 public:
  StepPlayer(const Plan& plan, const CostModel& cost, const SimulationOptions& options)
      : plan_(plan), cost_(cost), options_(options), collectives_(cost, options.record_spans) {
    for (int replica = 0; replica < plan.topology.data_parallel; ++replica) {
      replicas_.emplace_back(replica, plan, cost, options.record_spans ? &spans_ : nullptr);
    }
  }

  Simulation play() {
    if (gathers_parameters()) gathered_ = gather({}, 0.0);
    for (std::int64_t micro_batch = 0; micro_batch < plan_.micro_batch_count(); ++micro_batch) {
      play_micro_batch(static_cast<std::int32_t>(micro_batch));
    }
    Simulation result;
    result.schedule_seconds = latest();
    result.gradient_sync_seconds = cost_.gradient_sync_seconds();
    result.step_seconds = result.schedule_seconds + result.gradient_sync_seconds;
    for (ReplicaPlayer& replica : replicas_) result.micro_batches.push_back(replica.take_micro_batches());
    result.spans = std::move(spans_);
    result.collectives = collectives_.take_spans();
    result.layers = cost_.model().num_layers;
    result.forward_passes = cost_.forward_passes();
    result.options = options_;
    return result;
  }

 private:
  bool reduces_every_micro_batch() const { return options_.zero_stage >= 2; }
  bool gathers_parameters() const { return options_.zero_stage == 3; }

  double latest() const {
    double seconds = 0.0;
    for (const ReplicaPlayer& replica : replicas_) seconds = std::max(seconds, replica.latest());
    return seconds;
  }

  void play_micro_batch(std::int32_t micro_batch) {
    for (ReplicaPlayer& replica : replicas_) replica.begin_micro_batch(static_cast<std::size_t>(micro_batch));
    const auto layers = static_cast<std::int32_t>(cost_.model().num_layers);
    for (std::int32_t layer = 0; layer < layers; ++layer) {
      const bool last = layer + 1 == layers;
      play_block({micro_batch, layer, Pass::forward},
                 last ? Block{micro_batch, 0, Pass::head} : Block{micro_batch, layer + 1, Pass::forward});
    }
    play_block({micro_batch, 0, Pass::head}, {micro_batch, layers - 1, Pass::backward});
    for (std::int32_t layer = layers; layer-- > 0;) {
      play_block({micro_batch, layer, Pass::backward},
                 layer > 0 ? Block{micro_batch, layer - 1, Pass::backward} : Block{micro_batch + 1, 0, Pass::forward});
    }
    if (reduces_every_micro_batch()) reduce(micro_batch, -1);
    for (ReplicaPlayer& replica : replicas_) replica.end_micro_batch(options_.wait_after_micro_batch);
  }

  /// `next` is what its parameters are gathered for meanwhile.
  void play_block(const Block& block, const Block& next) {
    const bool backward = block.pass == Pass::backward;
    if (gathers_parameters()) {
      hold_until(gathered_);
      if (next.micro_batch < plan_.micro_batch_count()) gathered_ = gather(next, latest());
    }
    if (backward && reduces_every_micro_batch()) hold_until(reduced_[0]);
    for (ReplicaPlayer& replica : replicas_) {
      if (backward && cost_.recompute() == Recompute::full) {
        replica.play({block.micro_batch, block.layer, Pass::recompute});
      }
      replica.play(block);
    }
    if (backward && reduces_every_micro_batch()) {
      std::rotate(reduced_.begin(), reduced_.begin() + 1, reduced_.end());
      reduced_.back() = reduce(block.micro_batch, block.layer);
    }
  }

  void hold_until(double seconds) {
    for (ReplicaPlayer& replica : replicas_) replica.hold_until(seconds);
  }

  double gather(const Block& block, double ready) {
    return collectives_.run(CollectiveSpan::Kind::gather_parameters, block.micro_batch,
                            block.pass == Pass::head ? -1 : block.layer, ready);
  }

  double reduce(std::int32_t micro_batch, std::int32_t layer) {
    return collectives_.run(CollectiveSpan::Kind::reduce_gradients, micro_batch, layer, latest());
  }

  /// Layers whose gradients a rank can hold before they are added up.
  static constexpr std::size_t gradient_buffers = 2;

  const Plan& plan_;
  const CostModel& cost_;
  const SimulationOptions& options_;
  CollectiveStream collectives_;
  std::vector<Span> spans_;
  std::vector<ReplicaPlayer> replicas_;
  double gathered_ = 0.0;                           ///< when the next block's parameters are there
  std::array<double, gradient_buffers> reduced_{};  ///< when the last layers' gradients were added up, oldest first
};

}  // namespace

std::string_view name_of(Activity activity) {
  switch (activity) {
    case Activity::fixed:
      return "fixed cost";
    case Activity::linear:
      return "linear";
    case Activity::head:
      return "head";
    case Activity::local_attention:
      return "local attention";
    case Activity::ring_attention:
      return "ring attention";
    case Activity::hop:
      return "hop";
  }
  return "";
}

std::string_view name_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::head:
      return "head";
    case Pass::recompute:
      return "recompute";
    case Pass::backward:
      return "backward";
  }
  return "";
}

double SimulatedRank::busy() const {
  double sum = 0.0;
  for (const Activity activity : all_activities) sum += activity == Activity::hop ? 0.0 : of(activity);
  return sum;
}

double Simulation::busy_share() const {
  double busy = 0.0;
  std::size_t ranks = 0;
  for (const auto& replica : micro_batches) {
    if (!replica.empty()) ranks += replica.front().ranks.size();
    for (const SimulatedMicroBatch& micro_batch : replica) {
      for (const SimulatedRank& rank : micro_batch.ranks) busy += rank.busy();
    }
  }
  return schedule_seconds > 0.0 ? busy / (schedule_seconds * static_cast<double>(ranks)) : 1.0;
}

Simulation simulate_step(const Plan& plan, const CostModel& cost, const SimulationOptions& options) {
  require(options.zero_stage >= 0 && options.zero_stage <= 3, "simulation: ZeRO stage {}, expected 0 to 3",
          options.zero_stage);
  return StepPlayer(plan, cost, options).play();
}

}  // namespace skrull
