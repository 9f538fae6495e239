#pragma once
// Micro-batches of random tokens, for measurements.

#include <cstdint>
#include <vector>

#include "skrull/data/micro_batch.h"

namespace skrull {

/// Sequences of these lengths back to back, ids and labels below `vocabulary`; every token but the last of a sequence
/// is trained.
MicroBatch random_batch(const std::vector<std::int64_t>& lengths, std::int64_t vocabulary);

}  // namespace skrull
