#pragma once
// A step played out kernel by kernel and message by message: what the closed form of cost_model.h sums up. The closed
// form is tested against it, and timelines are drawn from it.
//
// What is simulated, with the durations of cost_model.h:
//   streams    A rank has a compute stream and a communication stream, each in order. A hop is a send to the next rank
//              of the ring and a receive from the one before; it starts when both neighbours have reached it too.
//              Rings are entered in one order on all ranks (ascending rank lists), so they cannot deadlock.
//   forward    Matrix products, then all hops of all rings are queued at once, hop t + 1 behind hop t. Meanwhile local
//              attention, the own shards of all rings, then ring by ring step t, which waits for hop t.
//   backward   Matrix products, then ring by ring. Hop t carries K and V of step t and the dK and dV that trail the
//              kernels, so it waits for step t - 2; after the last step the last dK and dV go home, before which the
//              layer does not end. While a step waits for its hop the rank does what needs no message: a slice of its
//              local attention, as long as the wait, then own shards of later rings.
//   recompute  Full recompute plays the forward of a layer again before its backward.
//   head       Between forward and backward, 3 head_f.
//   end        At the end of a micro-batch the ranks of a replica wait for each other (SimulationOptions); at the end
//   of
//              the step all ranks do, for the exposed part of the gradients' synchronisation.
//   stage 2    Every micro-batch adds up each layer's gradients over all ranks of all replicas, behind the backward.
//              Two layers' gradients have room, so no rank gets further than two layers ahead of the slowest: replicas
//              move in near lockstep. A replica that has no more micro-batches joins with empty hands.
//   stage 3    Each pass over a layer also gathers its parameters from all ranks, one layer ahead.
// Collectives have a stream of their own and take no bandwidth from the hops.
//
// How it compares with evaluate_plan, which treats each rank of a replica alone and a micro-batch as its slowest rank
// (stage 0 or 1, ranks wait after a micro-batch):
//   equal      up to rounding, when no micro-batch has a ring; and when a micro-batch has one ring, or rings without a
//              common rank, and in each ring one rank is the slowest forward and backward.
//   within 1%  when all sequences of a micro-batch are on one ring, whatever the rounding of shards (in fact 0.1%).
//   longer     when ranks of a ring differ in what is slow: a ring keeps its ranks together layer by layer, so it lasts
//              the slowest forward plus the slowest backward. Rings that overlap pass on delays of their links.
//              Plans of the policy skrull for batches with long tails: on 4 x 8 ranks up to 0.2% longer in the mean and
//              about 1% at worst; on 2 x 16, each replica over two nodes, about 1% in the mean and 6% at worst.
//   shorter    when a rank has several rings and one's kernels hide another's hops.
// It is never below lower_bound.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "skrull/schedule/cost_model.h"
#include "skrull/schedule/plan.h"

namespace skrull {

/// What a rank is busy with. `hop` is on its communication stream, everything else on its compute stream.
enum class Activity : std::uint8_t { fixed, linear, head, local_attention, ring_attention, hop };
inline constexpr std::array all_activities{Activity::fixed,           Activity::linear,         Activity::head,
                                           Activity::local_attention, Activity::ring_attention, Activity::hop};
inline constexpr std::size_t activity_count = all_activities.size();
std::string_view name_of(Activity activity);

enum class Pass : std::uint8_t { forward, head, recompute, backward };
std::string_view name_of(Pass pass);

struct SimulationOptions {
  int zero_stage = 0;  ///< 0 to 3; 0 and 1 take the same time
  /// Whether the ranks of a replica wait for each other after each micro-batch. The closed form assumes it, so it is
  /// the default; at stage 0 and 1 nothing but rings forces them to, and `false` shows what they would gain.
  bool wait_after_micro_batch = true;
  bool record_spans = false;  ///< keep every kernel and hop in Simulation::spans
};

/// One kernel (or fused run of kernels) or hop. Seconds since the start of the step.
struct Span {
  double begin = 0.0;
  double end = 0.0;
  std::int32_t replica = 0;
  std::int32_t rank = 0;  ///< context-parallel rank in the replica
  std::int32_t micro_batch = 0;
  std::int32_t layer = 0;  ///< 0 for the head
  std::int32_t ring = -1;  ///< index into SimulatedMicroBatch::rings; -1: none
  std::int32_t step = -1;  ///< of the ring: 0 is the own shard; a hop has the step it feeds, the ring's size: home
  Activity activity = Activity::fixed;
  Pass pass = Pass::forward;
};

/// All sequences of a micro-batch that share a ring.
struct SimulatedRing {
  std::vector<int> ranks;
  std::vector<std::int64_t> sequences;  ///< indices into the global batch
};

/// One rank in one micro-batch.
struct SimulatedRank {
  double begin = 0.0;
  double end = 0.0;  ///< of its own work; the micro-batch may end later
  std::array<double, activity_count> seconds{};

  double of(Activity activity) const { return seconds[static_cast<std::size_t>(activity)]; }
  /// Seconds of its compute stream in use.
  double busy() const;
  /// Seconds between begin and end in which it waited: for hops, or at stage 2 and 3 for other ranks.
  double waiting() const { return end - begin - busy(); }
};

struct SimulatedMicroBatch {
  double begin = 0.0;  ///< earliest of its ranks
  double end = 0.0;    ///< latest of its ranks
  bool empty = false;  ///< no sequences: its ranks compute nothing
  std::vector<SimulatedRank> ranks;
  std::vector<SimulatedRing> rings;
};

/// A collective of stage 2 or 3 over all ranks.
struct CollectiveSpan {
  enum class Kind : std::uint8_t { gather_parameters, reduce_gradients };
  double begin = 0.0;
  double end = 0.0;
  std::int32_t micro_batch = 0;
  std::int32_t layer = -1;  ///< -1: embedding and head
  Kind kind = Kind::reduce_gradients;
};

struct Simulation {
  double schedule_seconds = 0.0;                                ///< when the last rank has done its micro-batches
  double gradient_sync_seconds = 0.0;                           ///< exposed part, after that
  double step_seconds = 0.0;                                    ///< both
  std::vector<std::vector<SimulatedMicroBatch>> micro_batches;  ///< [replica][micro-batch]
  std::vector<Span> spans;                                      ///< by time of the simulation, not sorted; if recorded
  std::vector<CollectiveSpan> collectives;                      ///< in order; if recorded
  std::int64_t layers = 0;
  int forward_passes = 1;  ///< of a layer
  SimulationOptions options;

  /// Share of schedule_seconds in which the ranks' compute streams are in use, over all ranks.
  double busy_share() const;
};

/// Plays a step of a valid plan. Deterministic. Throws RunFailure for a ZeRO stage outside 0 to 3.
Simulation simulate_step(const Plan& plan, const CostModel& cost, const SimulationOptions& options = {});

}  // namespace skrull
