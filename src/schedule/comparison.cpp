#include "skrull/schedule/comparison.h"

#include <algorithm>

#include "skrull/core/error.h"
#include "skrull/core/stopwatch.h"
#include "skrull/schedule/bound.h"
#include "skrull/schedule/sorted_batches.h"

namespace skrull {
namespace {

using Batches = std::vector<std::vector<std::int64_t>>;

class Comparison {
 public:
  Comparison(const Topology& topology, std::int64_t bucket_tokens, const CostModel& cost, const SearchOptions& search)
      : topology_(topology), bucket_tokens_(bucket_tokens), cost_(cost), search_(search) {}

  ScheduleRequest request(const std::vector<std::int64_t>& lengths) const {
    return {lengths, topology_, bucket_tokens_};
  }

  std::vector<double> bounds_of(const Batches& batches) const {
    std::vector<double> bounds;
    bounds.reserve(batches.size());
    for (const auto& lengths : batches) bounds.push_back(lower_bound(request(lengths), cost_).seconds);
    return bounds;
  }

  PolicySummary summarize(const std::string& policy, const Batches& batches, const std::vector<double>& bounds) const {
    PolicySummary sum;
    sum.policy = policy;
    sum.hidden_share = 0.0;
    std::size_t sequences = 0;
    std::int64_t distributed = 0;
    std::vector<double> scheduling;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      sequences += batches[i].size();
      scheduling.push_back(add_batch(sum, request(batches[i]), bounds[i], distributed));
    }
    std::nth_element(scheduling.begin(), scheduling.begin() + static_cast<std::ptrdiff_t>(scheduling.size() / 2),
                     scheduling.end());
    sum.median_scheduling = scheduling[scheduling.size() / 2];
    const auto count = static_cast<double>(batches.size());
    for (double* mean : {&sum.schedule_seconds, &sum.step_seconds, &sum.mean_gap, &sum.micro_batches, &sum.hidden_share,
                         &sum.scheduling_seconds}) {
      *mean /= count;
    }
    sum.distributed_share = static_cast<double>(distributed) / static_cast<double>(std::max<std::size_t>(1, sequences));
    return sum;
  }

 private:
  /// Returns the seconds to make the plan.
  double add_batch(PolicySummary& sum, const ScheduleRequest& request, double bound, std::int64_t& distributed) const {
    const Stopwatch watch;
    const Plan plan = make_plan(sum.policy, request, cost_, search_);
    const double scheduling = watch.seconds();
    const PlanCost result = evaluate_plan(plan, cost_);
    const double gap = bound > 0.0 ? result.schedule_seconds / bound - 1.0 : 0.0;
    sum.schedule_seconds += result.schedule_seconds;
    sum.step_seconds += result.step_seconds;
    sum.mean_gap += gap;
    sum.worst_gap = std::max(sum.worst_gap, gap);
    sum.hidden_share += result.hidden_share;
    sum.peak_tokens = std::max(sum.peak_tokens, result.peak_tokens);
    sum.scheduling_seconds += scheduling;
    sum.longest_scheduling = std::max(sum.longest_scheduling, scheduling);
    distributed += result.distributed_sequences;
    for (const auto& replica : result.micro_batch_seconds) {
      sum.micro_batches += static_cast<double>(
          std::count_if(replica.begin(), replica.end(), [](double seconds) { return seconds > 0.0; }));
    }
    return scheduling;
  }

  const Topology& topology_;
  std::int64_t bucket_tokens_;
  const CostModel& cost_;
  const SearchOptions& search_;
};

}  // namespace

std::vector<PolicySummary> compare_policies(const std::vector<std::string>& policies, const Batches& batches,
                                            const Topology& topology, std::int64_t bucket_tokens, const CostModel& cost,
                                            const SearchOptions& search) {
  if (batches.empty()) throw_invalid_input("no global batches to compare policies on");
  const Comparison comparison(topology, bucket_tokens, cost, search);
  for (const auto& lengths : batches) check_schedule_request(comparison.request(lengths));
  const std::vector<double> bounds = comparison.bounds_of(batches);
  std::vector<PolicySummary> summaries;
  for (const std::string& policy : policies) {
    if (policy == "sorted") {
      const Batches regrouped = sorted_batches(batches, 0);
      summaries.push_back(comparison.summarize(policy, regrouped, comparison.bounds_of(regrouped)));
    } else {
      summaries.push_back(comparison.summarize(policy, batches, bounds));
    }
  }
  return summaries;
}

}  // namespace skrull
