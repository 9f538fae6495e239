#pragma once
// A cost model for tests that need a plan and not its quality: round numbers, a small model.

#include <memory>
#include <string>

#include "skrull/schedule/scheduler.h"

namespace skrull::test {

inline ModelShape small_shape() {
  return {.hidden_size = 64,
          .num_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 16,
          .intermediate_size = 128,
          .vocab_size = 512};
}

inline HardwareProfile round_profile() {
  HardwareProfile profile;
  profile.name = "round numbers";
  using Below = LogLogCurve::BelowFirst;
  profile.linear_peak_flops = LogLogCurve({{64.0, 1e12}}, Below::constant);
  profile.linear_efficiency = LogLogCurve({{1.0, 0.5}, {1000.0, 1.0}}, Below::proportional);
  profile.attention_peak_flops = LogLogCurve({{16.0, 5e11}}, Below::constant);
  profile.attention_efficiency = LogLogCurve({{1.0, 0.1}, {1000.0, 1.0}}, Below::proportional);
  profile.overhead = {1e-6, 2e-6, 1e-7, 2e-7, 5e-7, 1e-6};
  profile.intra_node = {1e11, 1e-6};
  profile.inter_node = {1e10, 1e-5};
  return profile;
}

inline std::shared_ptr<const CostModel> small_cost_model() {
  static const auto model = std::make_shared<const CostModel>(small_shape(), round_profile());
  return model;
}

inline Plan small_plan(const std::string& policy, const ScheduleRequest& request) {
  return make_plan(policy, request, *small_cost_model());
}

}  // namespace skrull::test
