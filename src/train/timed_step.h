#pragma once
// One optimizer step of a random micro-batch, timed: what benchmarks repeat.

#include <cstdint>
#include <limits>
#include <vector>

#include "skrull/data/micro_batch.h"
#include "skrull/device/device.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/trainable_parameters.h"

namespace skrull {

/// Half of the tokens, half of the rest, ... down to single tokens; never more than `longest`.
std::vector<std::int64_t> mixed_lengths(std::int64_t tokens,
                                        std::int64_t longest = std::numeric_limits<std::int64_t>::max());

struct StepTime {
  double seconds = 0;            ///< forward, backward, norm, update
  double update_seconds = 0;     ///< of which norm and update
  double processor_seconds = 0;  ///< of all threads of this process
};

/// `attention` has begun the micro-batch. Collective; waits for both streams.
StepTime timed_step(const MicroBatch& batch, Transformer& model, AttentionExecutor& attention,
                    TrainableParameters& parameters, Device& device);

}  // namespace skrull
