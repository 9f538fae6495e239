#pragma once
// What `skrull plan` says: of one plan, and of several policies side by side. For people on standard error, for
// machines as JSON.

#include <vector>

#include "skrull/core/json.h"
#include "skrull/schedule/comparison.h"
#include "skrull/train/planning.h"

namespace skrull::cli {

void report_plan(const JudgedPlan& judged, const PlanningSetup& setup);
OrderedJson plan_to_result(const JudgedPlan& judged, const PlanningSetup& setup);

/// `tokens`: of a global batch, on average.
void report_comparison(const std::vector<PolicySummary>& policies, const PlanningSetup& setup, double tokens);
OrderedJson comparison_to_result(const std::vector<PolicySummary>& policies, const PlanningSetup& setup, double tokens);

/// Model sizes, ranks, bucket and hardware, which both results hold.
OrderedJson setup_to_json(const PlanningSetup& setup);

/// {"packed": 1.5, ..}: by what factor `one` is faster than each of `policies`, itself included.
OrderedJson speedups_over(const std::vector<PolicySummary>& policies, const PolicySummary& one);

}  // namespace skrull::cli
