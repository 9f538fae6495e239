#pragma once
// A first schedule, longest sequences first.

#include <optional>

#include "draft_schedule.h"

namespace skrull {

/// The sequences, the longest first.
std::vector<int> longest_first(const ScheduleRequest& request);

inline constexpr int any_node = -1;

/// The `size` ranks with the fewest seconds among those of `micro_batch` that have room for a shard of `most_tokens`,
/// into `ranks`, ascending; only ranks of `node` (counted over the world) unless it is any_node. False when too few
/// have.
bool least_loaded_ranks(const DraftSchedule& draft, int micro_batch, int size, std::int64_t most_tokens, int node,
                        std::vector<int>& ranks);

/// Places every sequence, longest first, on the smallest ring on which no rank exceeds `height` seconds, in the
/// micro-batch where its slowest rank ends first; where no ring stays below, on the one that ends first. Empty when a
/// sequence finds no room.
std::optional<DraftSchedule> construct_schedule(const PlacementCosts& costs, int micro_batches, double height,
                                                bool elastic);

/// Places `sequences` in their order, each as construct_schedule does, into the given micro-batches only. False when
/// one finds no room; those before it stay placed.
bool place_sequences(DraftSchedule& draft, std::span<const int> sequences, std::span<const int> micro_batches,
                     double height, bool elastic);

}  // namespace skrull
