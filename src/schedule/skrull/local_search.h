#pragma once
// Improves a schedule by many small random moves.

#include <chrono>
#include <cstdint>
#include <optional>

#include "draft_schedule.h"

namespace skrull {

using SearchDeadline = std::optional<std::chrono::steady_clock::time_point>;

struct LocalSearchOptions {
  std::int64_t moves = 0;  ///< moves of whole sequences; a move that changes rings counts as several
  std::uint64_t seed = 0;
  bool elastic = true;      ///< false: rings have all CP ranks
  SearchDeadline deadline;  ///< also stop then
};

/// Simulated annealing over: relocate a sequence, swap two, another ring for a long one, exchange micro-batches between
/// replicas, and take two ranks apart and place their sequences anew. Returns the best schedule met at the end of the
/// cooling, never worse than `draft`.
DraftSchedule local_search(DraftSchedule draft, const LocalSearchOptions& options);

}  // namespace skrull
