#pragma once
// The rings of a planned micro-batch.

#include <cstdint>
#include <vector>

#include "skrull/schedule/cost_model.h"
#include "skrull/schedule/plan.h"

namespace skrull {

/// All distributed sequences of a micro-batch on the same ranks: they share kernels and messages.
struct RingGroup {
  std::vector<int> ranks;  ///< ascending
  std::vector<std::int64_t> sequences;
  std::vector<double> attention_forward;  ///< [position] seconds of one layer, over the sequences
  double hop_bytes = 0.0;                 ///< K and V of one hop
  Link link = Link::intra_node;
};

/// By ascending rank lists.
std::vector<RingGroup> ring_groups(const Plan& plan, int replica, const PlannedMicroBatch& micro_batch,
                                   const CostModel& cost);

}  // namespace skrull
