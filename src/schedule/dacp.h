#pragma once
// Distribution-aware context parallelism (DACP), the heuristic of the Skrull paper (arXiv 2505.19609) for one
// micro-batch: which sequences stay whole on one CP rank, and which are sharded over all of them.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "skrull/schedule/plan.h"

namespace skrull {

/// Which rank is offered a sequence first.
enum class LocalRule {
  least_loaded,  ///< the one with the least computation so far (as printed)
  cyclic         ///< the next in turn: the paper's ablation "round-robin"
};

struct DacpProblem {
  std::span<const std::int64_t> lengths;  ///< of the global batch
  std::span<const double> flops;          ///< of each of its sequences
  int context_parallel = 1;
  std::int64_t bucket_tokens = 0;
  LocalRule local_rule = LocalRule::least_loaded;
};

/// Places `sequences` (ascending in length). With room = bucket_tokens - tokens held, for each sequence:
///   1. local on the rank of the local rule, if it has room;
///   2. else local on the rank with the most room, if it has room;
///   3. else distributed over all ranks, if every rank has room for its zigzag shard;
///   4. else roll back: on the rank that lacks most room, the first (shortest) local sequence becomes distributed, and
///      the sequence is tried again from 1.
/// The paper's print accounts a roll-back on that one rank alone, so that the others, which now hold a share as well,
/// can overflow. Here every rank's room and load change, shard sizes are exact, and a roll-back whose shares do not fit
/// is none. Returns nullopt when there is nothing to roll back: the micro-batch is too large for the rules.
std::optional<PlannedMicroBatch> dacp(const DacpProblem& problem, std::span<const std::int64_t> sequences);

}  // namespace skrull
