#pragma once
// A lower bound on the schedule time of any plan: how far a plan can be from the best one.

#include <string_view>

#include "skrull/schedule/cost_model.h"

namespace skrull {

/// Which argument gives the bound.
enum class BoundReason { work, largest_sequence, memory };
std::string_view name_of(BoundReason reason);

struct LowerBound {
  double seconds = 0.0;
  BoundReason reason = BoundReason::work;
  double largest_sequence = 0.0;  ///< the longest of all sequences' shortest times alone in a micro-batch
  double memory = 0.0;            ///< fixed cost of the fewest micro-batches that hold the tokens
};

/// The smallest T that no argument rules out, for every plan of these lengths, ranks and bucket under this model:
///   work     T >= min over q = 1..DP replicas with work of fixed max(1, M/q) + W(T)/(q N), M = ceil(tokens/(C N)),
///            where W(T) sums each sequence's least attention work over ring sizes that are no slower than T alone, and
///            all tokens' linear work at the best efficiency that min(C, tokens processable in T) tokens reach
///   largest  T >= max over sequences of the least time alone
///   memory   T >= fixed ceil(tokens / (C N DP))
/// Transfers, fixed costs of rings and integrality are ignored in the first, so it is optimistic. Throws InvalidInput
/// when a sequence fits no ring.
LowerBound lower_bound(const ScheduleRequest& request, const CostModel& cost);

}  // namespace skrull
