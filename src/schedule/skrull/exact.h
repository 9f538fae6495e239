#pragma once
// The best schedule of a small request, by branch and bound.
//
// Sequences are placed one by one, the longest first, each on every rank and ring of every micro-batch there is and of
// a new one; a partial schedule that cannot become better than the best one known is given up. Two bounds tell:
//
// Time so far. More sequences never shorten a rank:
//   - A rank's seconds are max(exposed transfer, local) + ring kernels, forward and backward, + linear, and the maximum
//     of (exposed + ring kernels) and (local + ring kernels). A local sequence adds to local alone.
//   - A ring's exposed + kernels is kernels + (r-1) max(0, hop - kernels / r) = max(kernels, (r-1) hop + kernels / r),
//     which rises with the kernels' seconds and with the bytes of a hop; a sequence on it adds to both.
//   - Linear seconds need not rise with the tokens where a profile's efficiency rises faster than they do; the search
//     counts the least of this many tokens or more (LinearFloor).
// Work. Without its exposed transfers, and with local attention beside all ring kernels, a rank's seconds are a sum to
//   which every sequence still to come adds at least: its attention at the ring size where that is least, of those that
//   fit and are quick enough alone; and its tokens at the least slope of linear seconds that any rank offers. All ranks
//   of the micro-batches together cannot do more than the schedule lasts. Replicas and micro-batches not begun count
//   their fixed cost where the tokens need them.
//
// Symmetry. A ring's positions differ by a token or two, so exchanging two ranks changes the costs a little. The search
//   therefore counts for every position of a ring what the least loaded one has: then micro-batches that differ by a
//   permutation of ranks (within nodes, or of whole nodes) cost the same, and one stands for all. A complete schedule
//   that is quick enough is tried with every permutation, at exact costs. Likewise one order stands for all of equal
//   sequences, of a replica's empty micro-batches, and of empty replicas on equal nodes.

#include <cstdint>

#include "draft_schedule.h"
#include "local_search.h"

namespace skrull {

/// The largest requests that are searched: beyond, the possibilities are too many.
inline constexpr int exact_most_sequences = 10;
inline constexpr int exact_most_ranks = 4;  ///< of all replicas

struct ExactOptions {
  bool elastic = true;           ///< false: rings have all CP ranks
  std::int64_t placements = 0;   ///< most placements looked at; some ten million a second
  SearchDeadline deadline = {};  ///< also stop then
};

struct ExactResult {
  DraftSchedule schedule;
  bool proven = false;          ///< no schedule is shorter, but for a relative 1e-10
  std::int64_t placements = 0;  ///< looked at
};

/// Whether the request is small enough.
bool exact_search_applies(const PlacementCosts& costs);

/// The best schedule of all; where the limits end the search before, the best one found, never worse than `known`,
/// which is complete. Deterministic without a deadline.
ExactResult exact_search(DraftSchedule known, const ExactOptions& options);

}  // namespace skrull
