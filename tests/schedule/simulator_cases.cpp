#include "simulator_cases.h"

namespace skrull::test {
namespace {

constexpr auto constant = LogLogCurve::BelowFirst::constant;
constexpr auto proportional = LogLogCurve::BelowFirst::proportional;

}  // namespace

ModelShape qwen_half_billion() {
  return {896, 24, 14, 2, 64, 4864, 151936};
}

HardwareProfile h100_profile() {
  HardwareProfile profile;
  profile.name = "test";
  profile.linear_peak_flops = {{{896, 4.65e14}, {3584, 5.95e14}}, constant};
  profile.linear_efficiency = {{{16, 0.028}, {128, 0.20}, {1024, 0.79}, {8192, 0.99}, {16384, 1.0}}, proportional};
  profile.attention_peak_flops = {{{64, 3.3e14}, {128, 5.0e14}}, constant};
  profile.attention_efficiency = {{{16, 0.008}, {128, 0.12}, {1024, 0.58}, {8192, 0.94}, {32768, 1.0}}, proportional};
  profile.overhead = {6e-5, 1.2e-4, 5e-6, 1.5e-5, 1e-5, 2e-5};
  profile.intra_node = {3.6e11, 1e-5};
  profile.inter_node = {4.5e10, 2.5e-5};
  profile.gradient_sync = GradientSync{3e11, 0.25};
  return profile;
}

CostModel unit_cost(std::int64_t layers, double latency_s, Recompute recompute) {
  // 20 FLOPs per token in a layer and in the head, 4 per pair, 4 bytes of K and V per token.
  const ModelShape model{1, layers, 1, 1, 1, 2, 10};
  HardwareProfile profile;
  profile.name = "unit";
  profile.linear_peak_flops = {{{1, 20.0}}, constant};
  profile.linear_efficiency = {{{1, 1.0}}, constant};
  profile.attention_peak_flops = {{{1, 4.0}}, constant};
  profile.attention_efficiency = {{{1, 1.0}}, constant};
  profile.overhead = {10.0, 20.0, 1.0, 2.0, 0.5, 0.75};
  profile.intra_node = {4.0, latency_s};
  profile.inter_node = profile.intra_node;
  return {model, profile, recompute};
}

}  // namespace skrull::test
