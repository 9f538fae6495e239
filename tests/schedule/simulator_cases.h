#pragma once
// Machines and models for tests of the simulator and its pictures.

#include "skrull/schedule/cost_model.h"

namespace skrull::test {

/// Qwen2.5-0.5B.
ModelShape qwen_half_billion();

/// Rates like those of an H100, one curve point less.
HardwareProfile h100_profile();

inline CostModel qwen_cost(Recompute recompute = Recompute::selective) {
  return {qwen_half_billion(), h100_profile(), recompute};
}

/// A model and a machine for sums in the head, forward: a second per token for the matrix products of a layer and for
/// the head, a second per query-key pair, a second per token of K and V on a link. Fixed costs: layer 10 and 20 s,
/// local attention 1 and 2 s, ring step 0.5 and 0.75 s. Links have a latency.
CostModel unit_cost(std::int64_t layers, double latency_s = 1.0, Recompute recompute = Recompute::selective);

}  // namespace skrull::test
