#pragma once
// Plans by policy: the one way into the schedulers.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/schedule/cost_model.h"
#include "skrull/schedule/plan.h"

namespace skrull {

/// Limits of the search of policy "skrull"; the other policies need none.
struct SearchOptions {
  bool elastic_rings = true;  ///< false: a distributed sequence lies on all CP ranks
  std::int64_t moves = -1;    ///< of the local search; -1: by the predicted step time
  double budget_ms = 0.0;     ///< > 0: also stop after this time, which makes plans depend on the machine's speed
  int threads = 1;            ///< the plan does not depend on it
  bool keep_ahead = false;    ///< plans are made while the step before is computed: no longer search than that allows
};

/// Throws InvalidInput for a topology or bucket_tokens below 1, a length < 1, or a sequence that no ring can hold
/// (names its index, and the least bucket_tokens and CP degree that would do).
void check_schedule_request(const ScheduleRequest& request);

/// Plans by the named policy. Deterministic unless budget_ms is set. Throws what check_schedule_request throws, and
/// InvalidInput for an unknown policy (names the known ones).
Plan make_plan(const std::string& policy, const ScheduleRequest& request, const CostModel& cost,
               const SearchOptions& search = {});

/// The policies of this version, the default first.
const std::vector<std::string>& policy_names();

}  // namespace skrull
