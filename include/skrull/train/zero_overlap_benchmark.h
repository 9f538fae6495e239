#pragma once
// How much of the gathers and reductions of sharded training state the computing hides, on an emulated network.

#include <cstdint>

#include "skrull/comm/mpi_session.h"
#include "skrull/core/dtype.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/schedule/recompute.h"

namespace skrull {

struct ZeroOverlapOptions {
  DType compute_dtype = DType::float32;
  std::int64_t tokens = 512;  ///< of every rank's micro-batch
  std::int64_t micro_batches = 4;
  std::int64_t steps = 3;  ///< measured, after one to warm up
  Recompute recompute = Recompute::selective;
  int zero_stage = 3;
  /// The link makes a step's gathers and reductions together take this share of its computing.
  double transfer_share = 1.0;
};

/// Seconds of a step, means over the measured ones.
struct HiddenCommunication {
  double transfer = 0.0;  ///< by the link, without waiting for peers
  double exposed = 0.0;   ///< that the compute stream waited, the mean of the ranks
  double hidden_share() const { return transfer > 0.0 ? 1.0 - exposed / transfer : 1.0; }
};

struct ZeroOverlapBenchmark {
  int ranks = 1;
  double bytes_per_second = 0;   ///< of the link
  double compute_seconds = 0;    ///< of a step's micro-batches, the mean of the ranks
  HiddenCommunication gathers;   ///< of parameters
  HiddenCommunication scatters;  ///< reductions of gradients
  HiddenCommunication all;
};

/// Random weights and tokens; every rank's time is that of its processor, as if it had a core of its own. Collective;
/// the same result on every rank. Throws InvalidInput for less than two ranks.
ZeroOverlapBenchmark bench_zero_overlap(const Qwen2Config& model, const ZeroOverlapOptions& options,
                                        const MpiSession& session);

}  // namespace skrull
