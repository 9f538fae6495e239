#pragma once
// How much of a ring's transfers local attention hides, and how fast ring attention is, on an emulated network.

#include <cstdint>

#include "skrull/comm/communicator.h"
#include "skrull/core/dtype.h"
#include "skrull/device/device.h"
#include "skrull/device/ops.h"

namespace skrull {

struct RingBenchmarkOptions {
  AttentionShape shape;
  DType compute_dtype = DType::bfloat16;
  std::int64_t ring_tokens = 4096;    ///< of the one sequence on the ring of all ranks, beside local ones
  std::int64_t local_tokens = 2048;   ///< of each rank's local sequences
  std::int64_t local_sequences = 8;   ///< that share local_tokens evenly
  std::int64_t alone_tokens = 16384;  ///< of the sequence whose attention is compared with one rank's
  std::int64_t turns = 5;             ///< values are medians over them
};

/// Seconds of one pass, means over the ranks.
struct HiddenTransfers {
  double local = 0.0;     ///< attention of the local sequences
  double transfer = 0.0;  ///< of the ring's hops, by the link
  double beside = 0.0;    ///< of the ring's own work, what no longer waits for the last transfer
  double exposed = 0.0;   ///< that the compute stream waited
  double hidden_share() const { return transfer > 0.0 ? 1.0 - exposed / transfer : 1.0; }
  /// What must be exposed: transfers that take longer than the work beside them.
  double least_exposed() const { return transfer > local + beside ? transfer - local - beside : 0.0; }
};

struct RingBenchmark {
  int ranks = 0;
  HiddenTransfers forward;  ///< transfers as long as the local attention
  HiddenTransfers backward;
  HiddenTransfers forward_alone;  ///< no local sequences; transfers twice as long as the ring's own work
  HiddenTransfers backward_alone;
  double one_rank_forward = 0.0;  ///< seconds: the sequence of alone_tokens whole on each rank, all at the same time
  double one_rank_backward = 0.0;
  double ring_forward = 0.0;  ///< seconds of the slowest rank: the same sequence over all ranks, on a fast link
  double ring_backward = 0.0;
  /// Of the rate of one rank per core.
  double ring_efficiency() const {
    return (one_rank_forward + one_rank_backward) / (ranks * (ring_forward + ring_backward));
  }
};

/// On `world`'s ranks, 2 or more, each with a device of its own on processor time (Device, TimeSource): as if every
/// rank had a core of its own. Collective; the same result on every rank.
RingBenchmark bench_ring_attention(const RingBenchmarkOptions& options, Device& device, Communicator& world);

}  // namespace skrull
