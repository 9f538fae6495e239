#pragma once
// The order of ring attention's backward on one rank, as pure functions: what it computes between the steps of its
// rings, so that transfers have work beside them, and where gradients on their way lie.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "skrull/parallel/ring_schedule.h"

namespace skrull {

/// One hop of one ring in the backward. The fp32 gradients of the keys and values that arrived go straight home, from
/// the outbox; those of the own shards that another rank computed come into the inbox, and are added to what is there.
///
/// Every rank takes these steps in the same order, by round and then by ring as in the plan, one exchange each: whoever
/// is in the earliest unfinished step can finish it.
struct RingBackwardStep {
  std::size_t round = 0;                   ///< whose arrival it computes with
  std::vector<AttentionSegment> segments;  ///< keys counted from the first row of `arrived`
  RowRange arrived;                        ///< rows of the arrivals
  RowRange own;                            ///< shards of the ring, counted from the first ring row
  int source = 0;                          ///< gets the gradients of `arrived`
  int reader = 0;                          ///< sends those of `own`
  std::int64_t outbox_begin = 0;           ///< `arrived.count` rows
  std::int64_t inbox_begin = 0;            ///< `own.count` rows
  /// So many steps, the first ones, must be over before this one computes: its regions were theirs.
  std::size_t steps_over = 0;
};

struct RingBackwardOrder {
  std::vector<RingBackwardStep> steps;
  /// Local sequences and own shards, in packed rows: what to compute before each step, and at last after all of them.
  /// Long ones are cut into slices of their queries, {[a, b) of the queries, [0, b) of the keys, causal}: each slice
  /// adds its exact share.
  std::vector<std::vector<AttentionSegment>> local;
};

struct RingBackwardOptions {
  /// Of the outbox and of the inbox; at least the most rows that a step sends or gets.
  std::int64_t gradient_rows = 0;
  /// Bytes of a row of gradients over those of a row of keys and values.
  double gradient_row_cost = 1;
};

/// Throws RunFailure when a step has more rows than options.gradient_rows.
RingBackwardOrder order_backward(const RingSchedule& schedule, const RingBackwardOptions& options);

/// A step of the rings as far as time goes. Work and transfers each in a unit of their own.
struct StepCost {
  double work = 0;
  double arrival = 0;    ///< transfer that must be over before it; all are queued at the start, one after the other
  double gradients = 0;  ///< transfer after it, behind all arrivals and the gradients of the steps before
  std::size_t steps_over = 0;  ///< it starts when the gradients of so many steps are home
};

/// How much of `local_work` to do before each step, and at last after all of them.
///
/// Of all rates of work against transfers, that one is assumed at which both take the same time in all: where transfers
/// are much faster there is little to hide, where they are much slower they never wait for work anyway. At this rate
/// the result is the best there is: a step is taken as soon as it can be, and local work while it cannot.
std::vector<double> place_local_work(double local_work, const std::vector<StepCost>& steps);

/// Cuts causal segments that have as many keys as queries, in their order, into groups of about `work` query-key pairs
/// each; the last group gets the rest. Slices begin at multiples of `slice_rows` of their segment and have at least
/// so many rows, or the whole segment.
std::vector<std::vector<AttentionSegment>> cut_into_slices(const std::vector<AttentionSegment>& segments,
                                                           const std::vector<double>& work, std::int64_t slice_rows);

}  // namespace skrull
