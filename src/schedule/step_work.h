#pragma once
// A micro-batch of a plan as seconds of kernels and hops: what the simulator plays.

#include <cstdint>
#include <vector>

#include "skrull/schedule/cost_model.h"
#include "skrull/schedule/plan.h"

namespace skrull {

/// A rank's place in a ring.
struct RingSeat {
  std::size_t ring = 0;
  std::size_t position = 0;
};

/// Seconds of one rank, of one layer except for the head.
struct RankKernels {
  double linear_forward = 0.0;
  double linear_backward = 0.0;
  double local_forward = 0.0;  ///< with its fixed cost; 0 without local sequences
  double local_backward = 0.0;
  double head = 0.0;            ///< forward and backward
  std::vector<RingSeat> seats;  ///< by ascending rings
};

/// A ring of r ranks: seconds of one of the r steps at each position, and of each hop.
struct RingKernels {
  std::vector<int> ranks;
  std::vector<std::int64_t> sequences;
  std::vector<double> step_forward;   ///< [position]
  std::vector<double> step_backward;  ///< [position]
  RingHops hops;
};

struct MicroBatchKernels {
  bool empty = true;
  std::vector<RankKernels> ranks;
  std::vector<RingKernels> rings;  ///< by ascending rank lists: the order in which all ranks enter them
};

MicroBatchKernels micro_batch_kernels(const Plan& plan, int replica, const PlannedMicroBatch& micro_batch,
                                      const CostModel& cost);

}  // namespace skrull
