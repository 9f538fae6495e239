#include "skrull/schedule/robustness.h"

#include <algorithm>

#include "skrull/core/error.h"

namespace skrull {
namespace {

LogLogCurve scaled(const LogLogCurve& curve, double factor) {
  std::vector<LogLogCurve::Point> points = curve.points();
  for (LogLogCurve::Point& point : points) point.value *= factor;
  return {std::move(points), LogLogCurve::BelowFirst::constant};
}

LinkRate scaled(const LinkRate& link, double factor) {
  return {link.bytes_per_s * factor, link.latency_s / factor};
}

}  // namespace

const std::vector<ProfileError>& usual_profile_errors() {
  static const std::vector<ProfileError> errors = {
      {.name = "attention 0.65x", .attention_rate = 0.65},
      {.name = "attention 1.3x", .attention_rate = 1.3},
      {.name = "network 3x slower", .network_rate = 1.0 / 3.0},
      {.name = "fixed costs 5x", .fixed_costs = 5.0},
  };
  return errors;
}

HardwareProfile with_error(const HardwareProfile& profile, const ProfileError& error) {
  HardwareProfile wrong = profile;
  wrong.name += fmt::format(" ({})", error.name);
  wrong.attention_peak_flops = scaled(profile.attention_peak_flops, error.attention_rate);
  wrong.intra_node = scaled(profile.intra_node, error.network_rate);
  wrong.inter_node = scaled(profile.inter_node, error.network_rate);
  LayerOverhead& overhead = wrong.overhead;
  for (double* cost :
       {&overhead.layer_forward_s, &overhead.layer_backward_s, &overhead.local_attention_forward_s,
        &overhead.local_attention_backward_s, &overhead.ring_step_forward_s, &overhead.ring_step_backward_s}) {
    *cost *= error.fixed_costs;
  }
  return wrong;
}

std::vector<ProfileErrorLoss> losses_by_profile_error(const std::string& policy,
                                                      const std::vector<ProfileError>& errors,
                                                      const std::vector<std::vector<std::int64_t>>& batches,
                                                      const Topology& topology, std::int64_t bucket_tokens,
                                                      const CostModel& cost, const SearchOptions& search) {
  require(!batches.empty(), "no global batches to plan with wrong profiles");
  std::vector<double> right;
  right.reserve(batches.size());
  for (const auto& lengths : batches) {
    right.push_back(schedule_seconds(make_plan(policy, {lengths, topology, bucket_tokens}, cost, search), cost));
  }
  std::vector<ProfileErrorLoss> losses;
  for (const ProfileError& error : errors) {
    const CostModel wrong(cost.model(), with_error(cost.profile(), error), cost.recompute(), cost.flops_model());
    ProfileErrorLoss& loss = losses.emplace_back();
    loss.name = error.name;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const Plan plan = make_plan(policy, {batches[i], topology, bucket_tokens}, wrong, search);
      const double of_batch = schedule_seconds(plan, cost) / right[i] - 1.0;
      loss.mean_loss += of_batch / static_cast<double>(batches.size());
      loss.worst_loss = i == 0 ? of_batch : std::max(loss.worst_loss, of_batch);
    }
  }
  return losses;
}

}  // namespace skrull
